#include "tests/engine/order_run.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <thread>
#include <utility>

namespace stalloc {
namespace {

std::byte* const kBase = reinterpret_cast<std::byte*>(std::uintptr_t{1} << 40);

Mark MarkOf(MarkKind kind) { return {kind, MarkEdge::kBegin, Pass::kNone, 0, 0, "", false}; }

// A first-fit plan, whose entries are on `streams.planned` streams: rows of them, as kernels and copies come.
DevicePlan PlanOnStreams(const std::vector<CorpusAllocation>& program, const Streams& streams,
                         std::mt19937_64& random) {
  DevicePlan plan = FirstFitPlan(program);
  std::uint32_t stream = 0;
  for (Entry& entry : plan.cycle[0].entries) {
    if (random() % 8 == 0) stream = static_cast<std::uint32_t>(random() % streams.planned);
    entry.stream = stream;
  }
  const std::vector<Entry>& entries = plan.cycle[0].entries;
  for (const Entry& from : entries) {
    for (const Entry& to : entries) {
      const Slot& a = plan.slots[from.slot];
      const Slot& b = plan.slots[to.slot];
      const bool meet = a.offset < b.offset + b.capacity && b.offset < a.offset + a.capacity;
      if (from.stream != to.stream && meet && random() % 1000 < 1000 * streams.foreseen) {
        plan.stream_edges.push_back({from.slot, to.slot, from.stream, to.stream});
      }
    }
  }
  return plan;
}

}  // namespace

OrderRun::OrderRun(std::uint64_t seed, std::size_t requests, const Streams& streams, SimulatedDevice::Habits habits,
                   Served served)
    : random_(seed),
      lends_random_(seed),
      streams_(streams),
      program_(RandomProgram(requests, 16 << 10, random_)),
      plan_(PlanOnStreams(program_, streams, random_)),
      dynamic_(served == Served::kEverything ? DynamicSpaceOptions{.limit_bytes = 2 * plan_.arena_bytes,
                                                                   .mapped_bytes = plan_.arena_bytes,
                                                                   .least_bytes = 1}
                                             : DynamicSpaceOptions{}),
      device_(static_cast<std::uint32_t>(std::max(plan_.arena_bytes, dynamic_.limit_bytes) / kBlockAlignment), seed,
              habits),
      growth_(plan_.arena_bytes),
      engine_(plan_, kBase, &device_, dynamic_),
      clock_(&device_, engine_) {
  growth_.Feed(&engine_);
}

void OrderRun::RunIteration(const Divergence& divergence, int threads) {
  iteration_ = Diverge(program_, divergence, random_);
  blocks_.assign(iteration_.requests.size(), {});
  allocated_ = std::vector<std::atomic<bool>>(iteration_.requests.size());
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    // The program's i-th request, or nearly so where the iteration diverges.
    blocks_[i].stream = HandleOf(plan_.cycle[0].entries[std::min(i, program_.size() - 1)].stream);
    if (Happens(streams_.strayed)) blocks_[i].stream = random_() % 12;
    if (Happens(streams_.recorded)) blocks_[i].also = 1 + random_() % 14;
    if (Happens(streams_.elsewhere)) blocks_[i].elsewhere = 1 + random_() % 4;
    if (Happens(streams_.untouched)) blocks_[i].untouched = true;
    blocks_[i].parallel = dynamic_.limit_bytes > 0 && Happens(0.02);
  }
  engine_.OnMark(MarkOf(MarkKind::kIteration));
  ++iterations_;
  next_step_ = 0;
  std::vector<std::thread> workers;
  for (int i = 1; i < threads; ++i) workers.emplace_back([this] { TakeSteps(); });
  TakeSteps();
  for (std::thread& worker : workers) worker.join();
  FreeLeftovers();
}

void OrderRun::LendQuietParts() {
  constexpr std::uint32_t kPart = 64;
  const std::uint32_t end = static_cast<std::uint32_t>(plan_.arena_bytes / kBlockAlignment) / kPart * kPart;
  const std::uint64_t done = clock_.Done();
  for (std::uint32_t lo = 0; lo < end; lo += kPart) {
    if (lends_random_() % 4 != 0 || !engine_.Withdraw(lo * kBlockAlignment, kPart * kBlockAlignment)) continue;
    const bool quiet = engine_.LastFreeIn(lo * kBlockAlignment, kPart * kBlockAlignment) < done;
    (quiet ? quiet_parts_ : busy_parts_) += 1;
    EXPECT_TRUE(!quiet || device_.IsDone(lo, lo + kPart)) << "granule " << lo;
    if (quiet && lent_.size() < 8) {
      lent_.push_back(lo);
    } else {
      engine_.Restore(lo * kBlockAlignment, kPart * kBlockAlignment);
    }
  }
  clock_.Tick();
}

void OrderRun::TakeBackParts() {
  for (const std::uint32_t lo : std::exchange(lent_, {})) {
    engine_.Restore(lo * kBlockAlignment, 64 * kBlockAlignment);
  }
}

void OrderRun::Finish() {
  TakeBackParts();
  FreeLeftovers();
  EXPECT_EQ(engine_.CheckInvariants(), "");
  const EngineStats stats = engine_.Stats();
  EXPECT_EQ(stats.live_blocks, 0u);
  EXPECT_EQ(stats.unknown_frees, 0u);
  EXPECT_EQ(stats.retained_blocks, 0u);
}

StreamHandle OrderRun::HandleOf(std::uint32_t ordinal) const {
  if (ordinal == 0) return kLegacyDefaultStream;
  if (ordinal == 1 && streams_.rotate) return 20 + iterations_ % 7;
  return ordinal == 2 && streams_.per_thread ? kPerThreadDefaultStream : StreamHandle{4} + ordinal;
}

void OrderRun::TakeSteps() {
  for (std::size_t at = next_step_++; at < iteration_.steps.size(); at = next_step_++) {
    const ReplayStep& step = iteration_.steps[at];
    Block& block = blocks_[step.request];
    if (step.allocate) {
      Allocate(block, iteration_.requests[step.request].bytes);
      allocated_[step.request].store(true, std::memory_order_release);
    } else {
      while (!allocated_[step.request].load(std::memory_order_acquire)) std::this_thread::yield();
      Free(block);
    }
    if (at % 97 == 0) engine_.OnMark(MarkOf(MarkKind::kMicrobatch));
    if (lends_ && at % 53 == 0) LendQuietParts();
    if (lends_ && at % 211 == 0) TakeBackParts();
  }
}

void OrderRun::Allocate(Block& block, Bytes bytes) {
  block.pointer = block.parallel ? engine_.AllocateUnexpected(bytes, block.stream, MissReason::kParallel).pointer
                                 : engine_.Allocate(bytes, block.stream).pointer;
  if (block.pointer == nullptr) return;
  block.lo = static_cast<std::uint32_t>((static_cast<std::byte*>(block.pointer) - kBase) / kBlockAlignment);
  block.hi = block.lo + static_cast<std::uint32_t>(BlockBytes(bytes) / kBlockAlignment);
  if (block.untouched) return;
  if (streams_.elsewhere > 0) {
    for (const StreamHandle stream : std::exchange(ElsewhereOf(block), {})) {
      device_.OrderBehind(block.stream, stream);
    }
  }
  device_.Begin(block.lo, block.hi, block.stream);
  if (block.also == 0) return;
  engine_.RecordStream(block.pointer, block.also);
  device_.UseBehind(block.lo, block.hi, block.also, block.stream);
}

void OrderRun::Free(Block& block) {
  if (block.pointer == nullptr) return;
  if (block.elsewhere != 0 && !block.untouched) return FreeElsewhere(block, block.elsewhere);
  // On the per-thread stream another thread may free, but only the one that allocated uses the block.
  if (block.stream != kPerThreadDefaultStream && !block.untouched) device_.Use(block.lo, block.hi, block.stream);
  EXPECT_EQ(engine_.Free(block.pointer), Bytes{block.hi - block.lo} * kBlockAlignment);
  block.pointer = nullptr;
}

std::vector<StreamHandle>& OrderRun::ElsewhereOf(const Block& block) {
  return elsewhere_[block.stream == kLegacyDefaultStreamToo ? kLegacyDefaultStream : block.stream];
}

void OrderRun::FreeElsewhere(Block& block, StreamHandle stream) {
  device_.UseBehind(block.lo, block.hi, stream, block.stream);
  EXPECT_EQ(engine_.Free(block.pointer, stream), Bytes{block.hi - block.lo} * kBlockAlignment);
  ElsewhereOf(block).push_back(stream);
  block.pointer = nullptr;
}

void OrderRun::FreeLeftovers() {
  for (Block& block : left_over_) Free(block);
  left_over_.clear();
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    if (iteration_.requests[i].freed_next_iteration && blocks_[i].pointer != nullptr) {
      left_over_.push_back(blocks_[i]);
    }
  }
  blocks_.clear();
}

}  // namespace stalloc
