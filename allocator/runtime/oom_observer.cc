#include "allocator/runtime/oom_observer.h"

#include "allocator/base/clock.h"

namespace stalloc {
namespace {

std::uint64_t AddressOf(const void* pointer) noexcept { return reinterpret_cast<std::uint64_t>(pointer); }

std::uint32_t Packed(auto high, auto low) noexcept {
  return static_cast<std::uint32_t>(high) << 8 | static_cast<std::uint32_t>(low);
}

}  // namespace

void OomObserver::Note(RecentEvent event) noexcept {
  event.time_ns = MonotonicNanoseconds();
  events_.Add(event);
}

void OomObserver::Began(const BlockBegin& block) {
  live_.Add(block.pointer, block.requested, block.stream, block.source);
  Note({.address = AddressOf(block.pointer),
        .bytes = block.requested,
        .stream = block.stream,
        .kind = RecentEvent::Kind::kAllocated,
        .detail = Packed(block.source, block.reason)});
}

void OomObserver::Ends(const BlockEnd& block) noexcept {
  if (block.bytes != 0) live_.Remove(block.pointer);
  Note({.address = AddressOf(block.pointer), .bytes = block.bytes, .kind = RecentEvent::Kind::kFreed});
}

void OomObserver::Used(const void* pointer, StreamHandle stream) noexcept {
  Note({.address = AddressOf(pointer), .stream = stream, .kind = RecentEvent::Kind::kStreamRecorded});
}

void OomObserver::OnMark(const Mark& mark) {
  live_.OnMark(mark);
  Note({.kind = RecentEvent::Kind::kMark, .detail = Packed(mark.kind, mark.edge)});
}

void OomObserver::OutOfMemory(Bytes requested, StreamHandle stream) noexcept {
  Note({.bytes = requested, .stream = stream, .kind = RecentEvent::Kind::kOutOfMemory});
}

}  // namespace stalloc
