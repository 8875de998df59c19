// The engine over operations that a byte string spells: a small plan, then allocations of expected, known and unknown
// sizes, from parallel regions, too, frees of live and of dead addresses, marks of every kind, streams recorded, chunks
// withdrawn and mapped again, the plan given up, what it leaves over served; with slots alone or with room beside them,
// with a fence or without. The engine's own invariants hold, and those of a model that knows where each block lies: no
// two share a byte, none leaves what is mapped, frees return what was allocated.
#include <algorithm>
#include <iterator>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "allocator/engine/plan_engine.h"
#include "planner/trial/instant_fence.h"
#include "tests/fuzz/fuzz_target.h"

namespace stalloc::fuzz {
namespace {

constexpr std::size_t kMostOperations = 2000;
constexpr std::size_t kCheckEvery = 16;  // operations between two walks over everything
constexpr std::uint32_t kArenaGranules = 4096;
constexpr std::uint32_t kMostGranules = 6144;  // where it may grow
constexpr std::uint32_t kChunkGranules = 256;
constexpr std::uint32_t kChunks = kArenaGranules / kChunkGranules;

// Two of CUDA's handles (1 and 2) mean default streams; these are streams of their own.
constexpr StreamHandle kStreams[] = {0, 0x1000, 0x2000};

std::byte* const kBase = reinterpret_cast<std::byte*>(std::uintptr_t{1} << 40);  // never touched

// Reads the input from its front; zeros behind its end.
class Bytestream {
 public:
  Bytestream(const std::uint8_t* data, std::size_t size) : at_(data), end_(data + size) {}
  [[nodiscard]] bool empty() const { return at_ == end_; }
  std::uint8_t Next() { return empty() ? 0 : *at_++; }
  std::uint32_t Below(std::uint32_t bound) {
    const std::uint32_t high = Next();
    return (high << 8 | Next()) % bound;
  }

 private:
  const std::uint8_t* at_;
  const std::uint8_t* end_;
};

Mark ReadMark(Bytestream& input) {
  Mark mark;
  mark.kind = static_cast<MarkKind>(1 + input.Below(6));
  mark.edge = input.Below(2) == 0 ? MarkEdge::kBegin : MarkEdge::kEnd;
  mark.pass = static_cast<Pass>(input.Below(3));
  mark.index = static_cast<std::int32_t>(input.Below(3));
  mark.automatic = input.Below(4) == 0;
  if (mark.kind == MarkKind::kLayer || mark.kind == MarkKind::kFence) mark.name = "eval";
  return mark;
}

// Slots anywhere in the arena: they may overlap, as those of blocks that live at different times do, and as those of a
// wrong plan do.
Script ReadScript(Bytestream& input, DevicePlan& plan) {
  Script script;
  for (std::uint32_t count = input.Below(64); count > 0; --count) {
    Entry entry;
    entry.entry_class = static_cast<EntryClass>(1 + input.Below(4));
    entry.bytes = entry.min_bytes = entry.max_bytes = (1 + Bytes{input.Below(24)}) * kBlockAlignment;
    if (entry.entry_class == EntryClass::kDynamic) entry.max_bytes += Bytes{input.Below(8)} * kBlockAlignment;
    entry.expected_life = input.Below(80);
    entry.stream = input.Below(8) == 0 ? 1 : 0;
    if (input.Below(8) != 0) {
      const auto granules = static_cast<std::uint32_t>(entry.max_bytes / kBlockAlignment);
      entry.slot = static_cast<std::uint32_t>(plan.slots.size());
      plan.slots.push_back({Bytes{input.Below(kArenaGranules - granules)} * kBlockAlignment, entry.max_bytes});
    }
    if (input.Below(8) == 0) {
      script.phases.push_back({ReadMark(input), static_cast<std::uint32_t>(script.entries.size())});
    }
    script.entries.push_back(entry);
  }
  return script;
}

DevicePlan ReadPlan(Bytestream& input) {
  DevicePlan plan;
  plan.arena_bytes = Bytes{kArenaGranules} * kBlockAlignment;
  plan.streams.resize(2);
  for (std::uint32_t count = input.Below(3); count > 0; --count) plan.prologue.push_back(ReadScript(input, plan));
  for (std::uint32_t count = 1 + input.Below(2); count > 0; --count) plan.cycle.push_back(ReadScript(input, plan));
  return plan;
}

// Who owns the arena: what is mapped of it.
class Mapping final : public ArenaBacking {
 public:
  bool EnsureBacked(Offset offset, Bytes bytes, std::uint64_t /*now*/, Growth /*growth*/) noexcept override {
    if (full_) return false;
    for (std::uint32_t chunk = 0; chunk < kChunks; ++chunk) {
      if (BeginOf(chunk) < offset + bytes && offset < BeginOf(chunk + 1)) Restore(chunk);
    }
    if (offset + bytes > end_) engine_->Extend(end_ = offset + bytes);
    return true;
  }

  void Feed(PlanEngine* engine) {
    engine_ = engine;
    engine->SetBacking(this);
  }
  bool Withdraw(std::uint32_t chunk) {
    const bool withdrawn = engine_->Withdraw(BeginOf(chunk), BeginOf(1));
    Require(!withdrawn || !withdrawn_[chunk], "what is withdrawn cannot be withdrawn again");
    withdrawn_[chunk] = withdrawn_[chunk] || withdrawn;
    return withdrawn;
  }
  void Restore(std::uint32_t chunk) noexcept {
    if (withdrawn_[chunk]) engine_->Restore(BeginOf(chunk), BeginOf(1));
    withdrawn_[chunk] = false;
  }
  // From now on, or no longer.
  void SetFull(bool full) { full_ = full; }

  [[nodiscard]] static Offset BeginOf(std::uint32_t chunk) { return Bytes{chunk} * kChunkGranules * kBlockAlignment; }
  [[nodiscard]] bool IsWithdrawn(std::uint32_t chunk) const { return withdrawn_[chunk]; }
  [[nodiscard]] bool IsMapped(Offset offset, Bytes bytes) const {
    for (std::uint32_t chunk = 0; chunk < kChunks; ++chunk) {
      if (withdrawn_[chunk] && BeginOf(chunk) < offset + bytes && offset < BeginOf(chunk + 1)) return false;
    }
    return offset + bytes <= end_;
  }

 private:
  PlanEngine* engine_ = nullptr;
  bool withdrawn_[kChunks] = {};
  bool full_ = false;
  Offset end_ = Bytes{kArenaGranules} * kBlockAlignment;
};

struct Kind {
  bool beside = false;  // requests without a slot are served, too
  bool fence = false;
};

// The engine and what must be true of it.
class Checked {
 public:
  Checked(const DevicePlan& plan, Kind kind)
      : kind_(kind), engine_(plan, kBase, kind.fence ? &fence_ : nullptr, OptionsOf(kind)) {
    mapping_.Feed(&engine_);
  }

  void Allocate(Bytes requested, StreamHandle stream) { Enter(engine_.Allocate(requested, stream), requested, stream); }
  void AllocateUnexpected(Bytes requested, StreamHandle stream) {
    Enter(engine_.AllocateUnexpected(requested, stream, MissReason::kParallel), requested, stream);
  }

  void FreeLive(std::uint32_t choice) {
    const auto block = Live(choice);
    if (block == occupied_.end()) return;
    Require(engine_.Free(kBase + block->first) == block->second.bytes, "a free returns the block's bytes");
    if (block->second.retained && !given_up_) {
      block->second.live = false;  // no fence: bytes that another stream used are never handed on
    } else {
      occupied_.erase(block);
    }
  }

  void FreeAnything(Offset offset) {
    const auto block = occupied_.find(offset);
    if (block != occupied_.end() && block->second.live) return;
    Require(engine_.Free(kBase + offset) == 0, "a free of what is not live is refused");
    ++unknown_frees_;
  }

  void RecordStream(std::uint32_t choice, StreamHandle stream) {
    const auto block = Live(choice);
    if (block == occupied_.end()) return;
    engine_.RecordStream(kBase + block->first, stream);
    block->second.retained = block->second.retained || (!kind_.fence && stream != block->second.stream);
  }

  void Look(Offset offset) const {
    const LiveBlock found = engine_.FindLive(kBase + offset);
    auto block = occupied_.upper_bound(offset);
    const bool inside = block != occupied_.begin() && (--block, offset < block->first + block->second.bytes);
    const bool live = inside && block->second.live;
    Require(live == (found.bytes != 0 && !found.freed_pending), "a live block is found where one lies");
    if (live) Require(found.offset == block->first && found.bytes == block->second.bytes, "and it is that block");
  }

  void Check() const {
    const std::string broken = engine_.CheckInvariants();
    Require(broken.empty(), broken);
    const EngineStats stats = engine_.Stats();
    const auto live = std::count_if(occupied_.begin(), occupied_.end(), [](const auto& b) { return b.second.live; });
    Require(stats.live_blocks == static_cast<std::uint64_t>(live), "live blocks are counted");
    Require(stats.unknown_frees == unknown_frees_, "unknown frees are counted");
  }

  void Mark(const stalloc::Mark& mark) { engine_.OnMark(mark); }
  void GiveUp() {
    engine_.Deactivate();
    given_up_ = true;
  }
  void DropPlan() {
    engine_.DropPlan();
    if (serves_ == Serves::kPlan) serves_ = Serves::kNothing;
  }
  void ServeLeftOver() {
    engine_.ServeLeftOver();
    if (serves_ == Serves::kNothing) serves_ = Serves::kLeftOver;
  }

  // Without a fence the model knows all that can be in the way.
  void Withdraw(std::uint32_t chunk) {
    const auto [begin, end] = std::pair(Mapping::BeginOf(chunk), Mapping::BeginOf(chunk + 1));
    const bool in_the_way = std::any_of(occupied_.begin(), occupied_.end(), [&](const auto& block) {
      return block.first < end && begin < block.first + block.second.bytes;
    });
    const bool possible = !in_the_way && !mapping_.IsWithdrawn(chunk);
    const bool withdrawn = mapping_.Withdraw(chunk);
    Require(kind_.fence ? possible || !withdrawn : possible == withdrawn, "what is idle, and no more, is withdrawn");
  }
  void Restore(std::uint32_t chunk) { mapping_.Restore(chunk); }
  void SetFull(bool full) { mapping_.SetFull(full); }

 private:
  struct Known {
    Bytes bytes;
    StreamHandle stream;
    bool live;
    bool retained;  // another stream was recorded on it
  };
  using Blocks = std::map<Offset, Known>;

  static DynamicSpaceOptions OptionsOf(Kind kind) {
    if (!kind.beside) return {};
    return {.limit_bytes = Bytes{kMostGranules} * kBlockAlignment,
            .mapped_bytes = Bytes{kArenaGranules} * kBlockAlignment,
            .least_bytes = 2 * kBlockAlignment};
  }

  void Enter(const PlanEngine::Allocation& allocation, Bytes requested, StreamHandle stream) {
    Require(allocation.pointer != nullptr || allocation.reason != MissReason::kNone, "a miss has a reason");
    if (allocation.pointer == nullptr) return;
    Require(kind_.beside || allocation.reason == MissReason::kNone, "only slots are served");
    const auto offset = static_cast<Offset>(static_cast<std::byte*>(allocation.pointer) - kBase);
    const Bytes bytes = BlockBytes(requested);
    Require(offset % kBlockAlignment == 0 && mapping_.IsMapped(offset, bytes), "a block lies where memory is");
    const auto next = occupied_.lower_bound(offset);
    Require(next == occupied_.end() || offset + bytes <= next->first, "no block runs into the next one");
    Require(next == occupied_.begin() || std::prev(next)->first + std::prev(next)->second.bytes <= offset,
            "no block begins in another one");
    Require(!given_up_ && serves_ != Serves::kNothing, "a plan that was given up serves nothing");
    Require(serves_ == Serves::kPlan || allocation.reason != MissReason::kNone, "nor do its slots, ever");
    occupied_[offset] = {bytes, stream, true, false};
  }

  [[nodiscard]] Blocks::iterator Live(std::uint32_t choice) {
    if (occupied_.empty()) return occupied_.end();
    const auto block = std::next(occupied_.begin(), choice % static_cast<std::uint32_t>(occupied_.size()));
    return block->second.live ? block : occupied_.end();
  }

  const Kind kind_;
  InstantFence fence_;
  Mapping mapping_;
  PlanEngine engine_;
  Blocks occupied_;
  std::uint64_t unknown_frees_ = 0;
  bool given_up_ = false;
  enum class Serves : std::uint8_t { kPlan, kNothing, kLeftOver } serves_ = Serves::kPlan;
};

void MaybeGiveUp(std::uint8_t choice, Checked& engine) {
  switch (choice) {
    case 255:
      return engine.GiveUp();
    case 254:
    case 253:
      return engine.DropPlan();
    case 252:
    case 251:
    case 250:
      return engine.ServeLeftOver();
    default:
      return engine.Check();
  }
}

// The sizes of the plan in turn, so that some requests are the expected ones.
class Expected {
 public:
  explicit Expected(const DevicePlan& plan) {
    for (const std::vector<Script>* scripts : {&plan.prologue, &plan.cycle}) {
      for (const Script& script : *scripts) {
        for (const Entry& entry : script.entries) sizes_.push_back(entry.bytes);
      }
    }
    if (sizes_.empty()) sizes_.push_back(kBlockAlignment);
  }
  Bytes Next() { return sizes_[next_++ % sizes_.size()]; }
  void Skip(std::uint32_t count) { next_ += count; }

 private:
  std::vector<Bytes> sizes_;
  std::size_t next_ = 0;
};

void Operate(Bytestream& input, Checked& engine, Expected& expected) {
  switch (input.Next() % 20) {
    case 0:
      return engine.Allocate((1 + Bytes{input.Below(24)}) * kBlockAlignment, 0);
    case 1:
      return engine.Allocate(1 + Bytes{input.Below(20'000)}, kStreams[input.Below(2)]);
    case 2:
      return engine.Allocate(Bytes{1} << input.Below(64), 0);
    case 3:
      return expected.Skip(input.Below(5));
    case 4:
      return engine.RecordStream(input.Below(64), kStreams[input.Below(3)]);
    case 5:
      return engine.FreeAnything(Bytes{input.Below(kMostGranules)} * kBlockAlignment);
    case 6:
      return engine.Look(input.Below(kMostGranules) * kBlockAlignment + input.Next());
    case 7:
      return engine.Mark(ReadMark(input));
    case 8:
      return MaybeGiveUp(input.Next(), engine);
    case 9:
    case 10:
    case 11:
      return engine.FreeLive(input.Below(4096));
    case 12:
      return engine.AllocateUnexpected(1 + Bytes{input.Below(20'000)}, kStreams[input.Below(3)]);
    case 13:
      return engine.Withdraw(input.Below(kChunks));
    case 14:
      return engine.Restore(input.Below(kChunks));
    case 15:
      return engine.SetFull(input.Below(2) == 0);
    default:
      return engine.Allocate(expected.Next() - input.Next() % 2, kStreams[input.Below(8) == 0 ? 1 : 0]);
  }
}

}  // namespace

std::vector<std::string> Seeds() {
  std::vector<std::string> seeds;
  std::uint32_t state = 1;
  for (int i = 0; i < 8; ++i) {
    std::string seed;
    for (int byte = 0; byte < 1500; ++byte) seed += static_cast<char>((state = state * 1664525u + 1013904223u) >> 24);
    seeds.push_back(std::move(seed));
  }
  return seeds;
}

}  // namespace stalloc::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace stalloc::fuzz;  // NOLINT
  Bytestream input(data, size);
  const std::uint8_t kind = input.Next();
  const stalloc::DevicePlan plan = ReadPlan(input);
  Expected expected(plan);
  Checked engine(plan, {.beside = (kind & 1) != 0, .fence = (kind & 2) != 0});
  for (std::size_t operation = 0; operation < kMostOperations && !input.empty(); ++operation) {
    Operate(input, engine, expected);
    if (operation % kCheckEvery == 0) engine.Check();
  }
  engine.Check();
  return 0;
}
