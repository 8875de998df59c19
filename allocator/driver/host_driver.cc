#include "allocator/driver/host_driver.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <new>
#include <utility>

#include "allocator/driver/host_driver_state.h"
#include "allocator/driver/host_memory.h"

namespace stalloc {
namespace {

void* ToPointer(Address address) { return reinterpret_cast<void*>(address); }

DriverStatus Invalid(const char* call) { return {DriverCode::kInvalid, EINVAL, call}; }

DriverStatus FromErrno(const char* call) {
  const int error = errno;
  return {error == ENOMEM ? DriverCode::kOutOfMemory : DriverCode::kFailed, error, call};
}

constexpr DriverStatus Forked(const char* call) { return {DriverCode::kShuttingDown, 0, call}; }

// Address space without memory; takes none, not even from an overcommit limit.
bool Inaccessible(Address hint, Bytes bytes, int extra_flags, Address* address) {
  void* const result =
      mmap(ToPointer(hint), bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | extra_flags, -1, 0);
  if (result == MAP_FAILED) return false;
  *address = reinterpret_cast<Address>(result);
  return true;
}

}  // namespace

bool HostDriver::State::Reserved(Address address, Bytes bytes) const noexcept {
  auto next = reservations.upper_bound(address);
  if (next == reservations.begin()) return false;
  const auto& [base, size] = *std::prev(next);
  return address - base < size && bytes <= size - (address - base);
}

bool HostDriver::State::AnyMapped(Address address, Bytes bytes) const noexcept {
  auto next = mappings.lower_bound(address + bytes);
  if (next == mappings.begin()) return false;
  const auto& [base, mapping] = *std::prev(next);
  return base + mapping.bytes > address;
}

bool HostDriver::State::WholeMaps(Address address, Bytes bytes) const noexcept {
  const Address end = address + bytes;
  for (auto it = mappings.find(address); it != mappings.end() && it->first == address; ++it) {
    address += it->second.bytes;
    if (address >= end) return address == end;
  }
  return false;
}

void HostDriver::State::DropMap(PhysicalHandle handle) noexcept {
  --handles.at(handle).maps;
  GiveBackIfDead(handle);
}

void HostDriver::State::GiveBackIfDead(PhysicalHandle handle) noexcept {
  const auto it = handles.find(handle);
  if (!it->second.released() || it->second.maps > 0) return;
  file.GiveBack(it->second.offset, it->second.bytes);
  handle_bytes -= it->second.bytes;
  handles.erase(it);
}

std::unique_ptr<HostDriver> HostDriver::Create(HostDriverOptions options) {
  const auto system_page = static_cast<Bytes>(sysconf(_SC_PAGESIZE));
  const Bytes granularity = options.granularity;
  if (granularity < system_page || (granularity & (granularity - 1)) != 0) {
    errno = EINVAL;
    return nullptr;
  }
  auto state = std::make_unique<State>();
  state->granularity = granularity;
  state->is_machine = options.capacity == 0;
  state->capacity =
      options.capacity != 0 ? options.capacity : static_cast<Bytes>(sysconf(_SC_PHYS_PAGES)) * system_page;
  if (!state->file.Open()) return nullptr;
  return std::unique_ptr<HostDriver>(new HostDriver(std::move(state)));
}

HostDriver::HostDriver(std::unique_ptr<State> state) : state_(std::move(state)) { RegisterForFork(state_.get()); }

HostDriver::~HostDriver() {
  UnregisterForFork(state_.get());
  for (const auto& [address, bytes] : state_->reservations) munmap(ToPointer(address), bytes);
}

Bytes HostDriver::Granularity() const noexcept { return state_->granularity; }

DriverStatus HostDriver::Reserve(Bytes bytes, Address* address) noexcept {
  const std::lock_guard lock(state_->mutex);
  const Bytes unit = state_->granularity;
  if (state_->forked) return Forked("Reserve");
  if (!state_->Aligned(unit, bytes) || bytes + unit < bytes) return Invalid("Reserve");
  // One unit more than requested holds an aligned range; what stands out at both ends goes back.
  Address start = 0;
  if (!Inaccessible(0, bytes + unit, 0, &start)) return FromErrno("Reserve");
  const Address aligned = RoundUp(start, unit);
  if (aligned > start) munmap(ToPointer(start), aligned - start);
  munmap(ToPointer(aligned + bytes), start + unit - aligned);
  try {
    state_->reservations.emplace(aligned, bytes);
  } catch (const std::bad_alloc&) {
    munmap(ToPointer(aligned), bytes);
    return {DriverCode::kOutOfMemory, ENOMEM, "Reserve"};
  }
  *address = aligned;
  return {};
}

DriverStatus HostDriver::ReleaseReservation(Address address, Bytes bytes) noexcept {
  const std::lock_guard lock(state_->mutex);
  if (state_->forked) return Forked("ReleaseReservation");
  const auto it = state_->reservations.find(address);
  if (it == state_->reservations.end() || it->second != bytes || state_->AnyMapped(address, bytes)) {
    return Invalid("ReleaseReservation");
  }
  if (munmap(ToPointer(address), bytes) != 0) return FromErrno("ReleaseReservation");
  state_->reservations.erase(it);
  return {};
}

DriverStatus HostDriver::Create(Bytes bytes, PhysicalHandle* handle) noexcept {
  const std::lock_guard lock(state_->mutex);
  if (state_->forked) return Forked("Create");
  if (!state_->Aligned(state_->granularity, bytes)) return Invalid("Create");
  constexpr DriverStatus kNoMemory{DriverCode::kOutOfMemory, ENOMEM, "Create"};
  if (bytes > state_->capacity || state_->handle_bytes > state_->capacity - bytes) return kNoMemory;
  State::Handle created;
  created.bytes = bytes;
  if (!state_->file.Take(bytes, &created.offset)) return kNoMemory;
  try {
    state_->handles.emplace(state_->next_handle, created);
  } catch (const std::bad_alloc&) {
    state_->file.GiveBack(created.offset, bytes);
    return kNoMemory;
  }
  state_->handle_bytes += bytes;
  *handle = state_->next_handle++;
  return {};
}

DriverStatus HostDriver::Release(PhysicalHandle handle) noexcept {
  const std::lock_guard lock(state_->mutex);
  if (state_->forked) return Forked("Release");
  const auto it = state_->handles.find(handle);
  if (it == state_->handles.end() || it->second.released()) return Invalid("Release");
  --it->second.owners;
  state_->GiveBackIfDead(handle);
  return {};
}

DriverStatus HostDriver::Map(Address address, Bytes bytes, PhysicalHandle handle) noexcept {
  const std::lock_guard lock(state_->mutex);
  if (state_->forked) return Forked("Map");
  const auto it = state_->handles.find(handle);
  if (it == state_->handles.end() || it->second.released() || it->second.bytes != bytes ||
      !state_->Aligned(address, bytes) || !state_->Reserved(address, bytes) || state_->AnyMapped(address, bytes)) {
    return Invalid("Map");
  }
  try {
    state_->mappings.emplace(address, State::Mapping{bytes, handle, false});
  } catch (const std::bad_alloc&) {
    return {DriverCode::kOutOfMemory, ENOMEM, "Map"};
  }
  if (mmap(ToPointer(address), bytes, PROT_NONE, MAP_SHARED | MAP_FIXED, state_->file.descriptor(),
           static_cast<off_t>(it->second.offset)) == MAP_FAILED) {
    const DriverStatus status = FromErrno("Map");
    state_->mappings.erase(address);
    return status;
  }
  ++it->second.maps;
  return {};
}

DriverStatus HostDriver::Unmap(Address address, Bytes bytes) noexcept {
  const std::lock_guard lock(state_->mutex);
  if (state_->forked) return Forked("Unmap");
  if (!state_->Aligned(address, bytes) || !state_->WholeMaps(address, bytes)) {
    return Invalid("Unmap");
  }
  Address same = 0;
  if (!Inaccessible(address, bytes, MAP_FIXED, &same)) return FromErrno("Unmap");
  const auto first = state_->mappings.find(address);
  const auto last = state_->mappings.lower_bound(address + bytes);
  for (auto it = first; it != last; ++it) state_->DropMap(it->second.handle);
  state_->mappings.erase(first, last);
  return {};
}

DriverStatus HostDriver::SetAccess(Address address, Bytes bytes) noexcept {
  const std::lock_guard lock(state_->mutex);
  if (state_->forked) return Forked("SetAccess");
  if (!state_->Aligned(address, bytes) || !state_->WholeMaps(address, bytes)) {
    return Invalid("SetAccess");
  }
  const auto first = state_->mappings.find(address);
  const auto last = state_->mappings.lower_bound(address + bytes);
  if (mprotect(ToPointer(address), bytes, PROT_READ | PROT_WRITE) != 0) {
    const DriverStatus status = FromErrno("SetAccess");
    // A part of the range may be accessible now: back to what it was, map by map.
    for (auto it = first; it != last; ++it) {
      if (!it->second.usable) mprotect(ToPointer(it->first), it->second.bytes, PROT_NONE);
    }
    return status;
  }
  for (auto it = first; it != last; ++it) it->second.usable = true;
  return {};
}

DriverStatus HostDriver::Export(PhysicalHandle handle, int* descriptor) noexcept {
  const std::lock_guard lock(state_->mutex);
  if (state_->forked) return Forked("Export");
  const auto it = state_->handles.find(handle);
  if (it == state_->handles.end() || it->second.released()) return Invalid("Export");
  return state_->file.Reopen(it->second.offset, descriptor) ? DriverStatus{} : FromErrno("Export");
}

DriverStatus HostDriver::Retain(Address address, MappedMemory* mapping) noexcept {
  const std::lock_guard lock(state_->mutex);
  if (state_->forked) return Forked("Retain");
  auto it = state_->mappings.upper_bound(address);
  if (it == state_->mappings.begin() || address - std::prev(it)->first >= std::prev(it)->second.bytes) {
    return Invalid("Retain");
  }
  --it;
  ++state_->handles.at(it->second.handle).owners;
  *mapping = {it->first, it->second.bytes, it->second.handle};
  return {};
}

DriverStatus HostDriver::Copy(Address to, Address from, Bytes bytes) noexcept {
  const std::lock_guard lock(state_->mutex);
  if (state_->forked) return Forked("Copy");
  std::memcpy(ToPointer(to), ToPointer(from), bytes);
  return {};
}

DriverStatus HostDriver::Fill(Address address, Bytes bytes, unsigned char value, StreamHandle) noexcept {
  const std::lock_guard lock(state_->mutex);
  if (state_->forked) return Forked("Fill");
  std::memset(ToPointer(address), value, bytes);
  return {};
}

DriverStatus HostDriver::GetMemoryInfo(MemoryInfo* info) noexcept {
  const std::lock_guard lock(state_->mutex);
  if (state_->forked) return Forked("GetMemoryInfo");
  info->total = state_->capacity;
  info->free = state_->capacity - state_->handle_bytes;
  // A process that takes memory "while there is plenty" shares the machine with all that runs on it.
  if (state_->is_machine) info->free = std::min(info->free, AvailableHostBytes() / 2);
  return {};
}

DriverStatus HostDriver::Synchronize() noexcept {
  const std::lock_guard lock(state_->mutex);
  return state_->forked ? Forked("Synchronize") : DriverStatus{};
}

HostDriver::Counts HostDriver::GetCounts() const noexcept {
  const std::lock_guard lock(state_->mutex);
  return {state_->reservations.size(), state_->handles.size(), state_->mappings.size(), state_->handle_bytes,
          state_->file.ResidentBytes()};
}

}  // namespace stalloc
