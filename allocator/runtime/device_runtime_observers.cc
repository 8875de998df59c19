// Who learns of a device's blocks.
#include "allocator/runtime/device_runtime_impl.h"

namespace stalloc {

DeviceRuntime::Impl::Impl(const Parts& given) : parts(given) {
  observers.Add(native.feed());
  if (parts.recorder != nullptr || parts.replaceable) {
    trace = std::make_unique<TraceObserver>(
        TraceObserver::Parts{.device = parts.device,
                             .ledger = &ledger,
                             .pass_here = parts.pass_here,
                             .own_bytes = [this] { return OwnBytes(); },
                             .upstream_bytes = [this] { return parts.upstream->HeldBytes().current; }},
        parts.recorder);
    observers.Add(*trace);
  }
  if (parts.signature != nullptr) {
    signature = std::make_unique<SignatureObserver>(parts.device, *parts.signature, ledger);
    observers.Add(*signature);
  }
  if (parts.reports != nullptr) {
    oom = std::make_unique<OomObserver>();
    observers.Add(*oom);
  }
  if (parts.watch != nullptr) {
    watch = std::make_unique<WatchObserver>(parts.device, *parts.watch, parts.driver, spaces, *parts.upstream);
    observers.Add(*watch);
  }
  if (parts.poisons_graphs && parts.driver != nullptr) {
    poison = std::make_unique<GraphPoison>(parts.device, *parts.driver);
  }
  if (parts.copies == nullptr || parts.driver == nullptr) return;
  sleep = std::make_unique<DeviceSleep>(DeviceSleep::Parts{.device = parts.device,
                                                           .driver = parts.driver,
                                                           .copies = parts.copies,
                                                           .upstream = parts.upstream,
                                                           .spaces = &spaces,
                                                           .fills = watch != nullptr});
  if (watch != nullptr) watch->SetSleep(*sleep);
}

void DeviceRuntime::RecordTo(Recorder* recorder) noexcept {
  if (impl_->trace != nullptr) impl_->trace->RecordTo(recorder);
}

}  // namespace stalloc
