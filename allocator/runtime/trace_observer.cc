#include "allocator/runtime/trace_observer.h"

#include <algorithm>

namespace stalloc {

std::uint32_t TraceObserver::FlagsOf(const BlockBegin& block) const noexcept {
  switch (block.origin) {
    case Origin::kProgram:
      break;
    case Origin::kCaptured:
      return kAllocCaptured | block.pool << kAllocPoolShift;
    case Origin::kParallel:
      return kAllocParallel;
  }
  return PassOf(parts_.pass_here) == RunningPass::kForwardAgain ? kAllocRecomputed : 0;
}

// What lives is held. A fake device holds nothing.
Bytes TraceObserver::HeldWith(Bytes upstream) const {
  const Bytes held = parts_.own_bytes() + upstream;
  return held == 0 ? 0 : std::max(held, parts_.ledger->live_bytes());
}

void TraceObserver::Record(Recorder& recorder, Bytes upstream) {
  const Bytes held = HeldWith(upstream);
  upstream_.store(upstream, std::memory_order_relaxed);
  held_.store(held, std::memory_order_relaxed);
  recorder.Held(parts_.device, held);
}

// Upstream is queried only where it has served, or own memory has grown.
void TraceObserver::RecordGrowth(Recorder& recorder, bool of_upstream) {
  const Bytes known = held_.load(std::memory_order_relaxed);
  if (!of_upstream && HeldWith(upstream_.load(std::memory_order_relaxed)) <= known) return;
  const Bytes upstream = parts_.upstream_bytes();
  if (HeldWith(upstream) > known) Record(recorder, upstream);
}

void TraceObserver::Began(const BlockBegin& block) {
  Recorder* const to = recorder();
  if (to == nullptr) return;
  RecordGrowth(*to, block.source == BlockSource::kUpstream);
  to->Allocated(parts_.device, block.pointer, block.requested, block.stream, FlagsOf(block));
}

void TraceObserver::Ends(const BlockEnd& block) noexcept {
  Recorder* const to = recorder();
  if (to != nullptr && block.bytes != 0) to->Freed(block.pointer);
}

void TraceObserver::Used(const void* pointer, StreamHandle stream) noexcept {
  if (Recorder* const to = recorder(); to != nullptr) to->StreamRecorded(pointer, stream);
}

void TraceObserver::Held(Bytes upstream) noexcept {
  if (Recorder* const to = recorder(); to != nullptr) Record(*to, upstream);
}

}  // namespace stalloc
