// Whether the plan that serves is worth what it holds: checked once an iteration.
#include <algorithm>
#include <vector>

#include "allocator/base/mutex.h"
#include "allocator/runtime/device_runtime_impl.h"

namespace stalloc {

// What lives, wherever it is, but for what is kept apart.
std::vector<NativeFeed::LiveBlock> DeviceRuntime::Impl::LiveForNative() const {
  std::vector<NativeFeed::LiveBlock> live;
  for (const PlannedSpace* const space : spaces.All()) {
    for (const LiveBlock& block : space->engine().LiveBlocks()) {
      if (!block.freed_pending) live.push_back({space->arena().base() + block.offset, block.bytes, block.stream});
    }
  }
  std::vector<Ledger::UpstreamBlock> of_upstream(ledger.CopyUpstreamBlocks({}) + 64);  // some may come meanwhile
  of_upstream.resize(std::min(of_upstream.size(), ledger.CopyUpstreamBlocks(of_upstream)));
  for (const Ledger::UpstreamBlock& block : of_upstream) {
    if (!block.apart) live.push_back({block.address, block.bytes, block.stream});
  }
  return live;
}

// Graphs' pools are held with a plan or without it, and whatever lives there. Upstream is queried only where what it
// holds has changed: its answer is dear.
Bytes DeviceRuntime::Impl::HeldApart(Bytes upstream) {
  if (!ledger.has_apart()) return 0;
  if (upstream != apart_at) {
    apart_at = upstream;
    apart_held = std::min(upstream, parts.upstream->HeldApart(ledger.apart_bytes()));
  }
  return apart_held;
}

// Arenas that serve no more keep what lives there, by the chunk. A plan could not change that, nor what upstream keeps
// by the page since before the plan.
Bytes DeviceRuntime::Impl::IdleInRetired() const noexcept {
  return spaces.Sum(
      [this](const PlannedSpace& space) { return &space != spaces.Serving() ? space.IdleBytes() : Bytes{0}; });
}

void DeviceRuntime::Impl::Judge(PlannedSpace* space, const IterationPeaks& all) {
  const Bytes apart_live = ledger.apart_bytes();
  const Bytes apart = std::min(HeldApart(parts.upstream->HeldBytes().current), all.held);
  const Bytes run_live = ledger.PeakBytes(Span::kRun);
  const IterationPeaks peaks = {all.live - std::min(all.live, apart_live), all.held - apart};
  const Bytes would = native.Play(peaks.live, run_live - std::min(run_live, apart_live), apart);
  if (space != nullptr) {
    const Bytes not_its = std::min(IdleInRetired() + upstream_cache.Kept(UpstreamNow()), peaks.held);
    const bool exact = parts.replaceable && !parts.upstream->Caches();
    space->Judge({.totals = counts.Expected(),
                  .peaks = {peaks.live, peaks.held - not_its},
                  .native = would,
                  .other = exact ? peaks.live : would,
                  .lived = native.at_least(),
                  .replaceable = parts.replaceable});
  }
  const bool serves = space != nullptr && space->has_plan() && !space->gave_up();
  if (native.Decide(!serves || space->fits(), peaks.held)) native.feed().Open([this] { return LiveForNative(); });
  const LockGuard lock(cold);
  native_known = native.known();
  if (native_known.held == 0) return;
  // What came apart while nothing was watched lies next to what lives, at least.
  native_known.held = std::max(native_known.with_apart, std::min(native_known.held, peaks.live) + apart);
}

}  // namespace stalloc
