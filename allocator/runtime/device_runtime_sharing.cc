// Memory of arenas in other hands: of peer devices, of other processes, of a forked child.
#include <utility>

#include "allocator/runtime/device_runtime_impl.h"

namespace stalloc {

// A peer's streams are not after the copies of a wake that came before it was one.
DriverStatus DeviceRuntime::RefreshAccess() noexcept {
  if (impl_->sleep != nullptr) impl_->sleep->AwaitCopies();
  DriverStatus first_failure;
  for (PlannedSpace* const space : impl_->spaces.All()) {
    const DriverStatus status = space->RefreshAccess();
    if (first_failure.ok()) first_failure = status;
  }
  if (const std::shared_ptr<PlannedSpace> prepared = impl_->NextSpace(); prepared != nullptr) {
    const DriverStatus status = prepared->RefreshAccess();
    if (first_failure.ok()) first_failure = status;
  }
  return first_failure;
}

Result<ExportedBlock> DeviceRuntime::Export(const void* pointer) const {
  if (impl_->inert.load(std::memory_order_relaxed)) return Error{"this process was forked, the memory is its parent's"};
  PlannedSpace* const space = impl_->spaces.Of(pointer);
  const LiveBlock live = space != nullptr ? space->engine().FindLive(pointer) : LiveBlock{};
  if (live.bytes == 0 || live.freed_pending) return Error{"no block of the arena is in use there"};
  if (live.asleep) return Error{"it is asleep (stalloc.sleep)"};
  // Another process may not have a graph's memory.
  const Offset borrowed = space->arena().borrow_begin();
  if (live.offset >= borrowed && !impl_->TakeBackPools())
    return Error{"it lies in a graph's pool, and the device has no memory for it elsewhere"};
  // From here on it does not fall asleep: the other process would keep memory that is no longer its.
  (void)space->engine().SetShared(live.offset);
  const Offset begin = reinterpret_cast<Address>(pointer) - space->arena().base();
  Result<Arena::Exported> chunks = space->Export(begin, live.offset + live.bytes - begin);
  if (!chunks.ok()) return Error{chunks.error()};
  const Offset first = chunks.value().offset;
  return ExportedBlock{std::move(chunks).value(), begin - first};
}

void DeviceRuntime::BecomeInert() noexcept {
  impl_->inert.store(true, std::memory_order_relaxed);
  for (PlannedSpace* const space : impl_->spaces.All()) space->DropDescriptors();
}

}  // namespace stalloc
