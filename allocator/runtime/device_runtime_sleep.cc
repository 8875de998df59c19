// A device asleep: who may be requested it, and what the rest of the runtime has to know of it.
#include "allocator/runtime/device_runtime_impl.h"

namespace stalloc {

Status DeviceRuntime::Impl::MaySleep() const {
  if (inert.load(std::memory_order_relaxed)) return Error{"this process was forked: its memory is its parent's"};
  if (parts.recorder != nullptr && !parts.awaits_plan)
    return Error{"a traced run has no arena: nothing of it can sleep"};
  if (spaces.Serving() == nullptr) {
    return Error{"there is no arena, so nothing can sleep: " + (degraded.empty() ? "no plan is served" : degraded)};
  }
  if (sleep == nullptr) return Error{"this device has no copies to the host"};
  return Ok{};
}

Result<SleepFigures> DeviceRuntime::Sleep(const SleepOrder& order) {
  if (Status may = impl_->MaySleep(); !may.ok()) return Error{may.error()};
  if (const auto prepared = impl_->NextSpace(); prepared != nullptr) prepared->GiveBackIdle();
  if (!impl_->TakeBackPools()) return Error{"blocks lie in graphs' pools, and cannot leave them now"};
  Result<SleepFigures> figures = impl_->sleep->Sleep(order);
  if (figures.ok()) figures.value().upstream_live = impl_->LiveUpstream();
  return figures;
}

Result<SleepFigures> DeviceRuntime::Wake(const TagNames& tags) {
  if (Status may = impl_->MaySleep(); !may.ok()) return Error{may.error()};
  Result<SleepFigures> figures = impl_->sleep->Wake(tags);
  if (figures.ok()) figures.value().upstream_live = impl_->LiveUpstream();
  return figures;
}

Status DeviceRuntime::ReadAsleep(const void* pointer, Bytes bytes, void* to) const {
  if (Status may = impl_->MaySleep(); !may.ok()) return may;
  return impl_->sleep->Read(pointer, bytes, to);
}

Status DeviceRuntime::ReserveHostPool(Bytes bytes) {
  if (Status may = impl_->MaySleep(); !may.ok()) return may;
  return impl_->sleep->ReserveHost(bytes);
}

Bytes DeviceRuntime::ReleaseHostPool() {
  const bool has_none = impl_->sleep == nullptr || impl_->inert.load(std::memory_order_relaxed);
  return has_none ? 0 : impl_->sleep->ReleaseHost();
}

}  // namespace stalloc
