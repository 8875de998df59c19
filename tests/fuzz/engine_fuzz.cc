// The engine over operations that a byte string spells: a small plan, then allocations of expected, known and unknown
// sizes, frees of live and of dead addresses, marks of every kind, streams recorded, ranges withdrawn, the plan given
// up. After every operation the engine's own invariants hold, and those of a model that knows where each block lies:
// no two share a byte, none leaves the arena, frees return what was allocated.
#include <algorithm>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include "allocator/engine/plan_engine.h"
#include "tests/fuzz/fuzz_target.h"

namespace stalloc::fuzz {
namespace {

constexpr std::size_t kMostOperations = 2000;
constexpr std::size_t kCheckEvery = 16;  // operations between two walks over everything
constexpr std::uint32_t kArenaGranules = 4096;

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
    if (input.Below(8) != 0) {
      const auto granules = static_cast<std::uint32_t>(entry.max_bytes / kBlockAlignment);
      entry.slot = static_cast<std::uint32_t>(plan.slots.size());
      plan.slots.push_back({Bytes{input.Below(kArenaGranules - granules)} * kBlockAlignment, entry.max_bytes, {}});
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
  plan.streams.push_back({});
  for (std::uint32_t count = input.Below(3); count > 0; --count) plan.prologue.push_back(ReadScript(input, plan));
  for (std::uint32_t count = 1 + input.Below(2); count > 0; --count) plan.cycle.push_back(ReadScript(input, plan));
  return plan;
}

// The engine and what must be true of it.
class Checked {
 public:
  explicit Checked(const DevicePlan& plan) : engine_(plan, kBase, nullptr), arena_bytes_(plan.arena_bytes) {}

  void Allocate(Bytes requested, StreamHandle stream) {
    const PlanEngine::Allocation allocation = engine_.Allocate(requested, stream);
    Require((allocation.pointer == nullptr) == (allocation.reason != MissReason::kNone), "a miss has a reason");
    if (allocation.pointer == nullptr) return;
    const auto offset = static_cast<Offset>(static_cast<std::byte*>(allocation.pointer) - kBase);
    const Bytes bytes = BlockBytes(requested);
    Require(offset % kBlockAlignment == 0 && offset + bytes <= arena_bytes_, "a block lies in the arena");
    const auto next = occupied_.lower_bound(offset);
    Require(next == occupied_.end() || offset + bytes <= next->first, "no block runs into the next one");
    Require(next == occupied_.begin() || std::prev(next)->first + std::prev(next)->second.bytes <= offset,
            "no block begins in another one");
    Require(!given_up_, "a plan that was given up serves nothing");
    occupied_[offset] = {bytes, stream, true, false};
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
    block->second.retained = block->second.retained || stream != block->second.stream;
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

 private:
  struct Known {
    Bytes bytes;
    StreamHandle stream;
    bool live;
    bool retained;  // another stream was recorded on it
  };
  using Blocks = std::map<Offset, Known>;

  [[nodiscard]] Blocks::iterator Live(std::uint32_t choice) {
    if (occupied_.empty()) return occupied_.end();
    const auto block = std::next(occupied_.begin(), choice % static_cast<std::uint32_t>(occupied_.size()));
    return block->second.live ? block : occupied_.end();
  }

  PlanEngine engine_;
  const Bytes arena_bytes_;
  Blocks occupied_;
  std::uint64_t unknown_frees_ = 0;
  bool given_up_ = false;
};

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
  switch (input.Next() % 16) {
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
      return engine.FreeAnything(Bytes{input.Below(kArenaGranules)} * kBlockAlignment);
    case 6:
      return engine.Look(input.Below(kArenaGranules) * kBlockAlignment + input.Next());
    case 7:
      return engine.Mark(ReadMark(input));
    case 8:
      return input.Next() == 255 ? engine.GiveUp() : engine.Check();
    case 9:
    case 10:
    case 11:
      return engine.FreeLive(input.Below(4096));
    default:
      return engine.Allocate(expected.Next() - input.Next() % 2, 0);
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
  const stalloc::DevicePlan plan = ReadPlan(input);
  Expected expected(plan);
  Checked engine(plan);
  for (std::size_t operation = 0; operation < kMostOperations && !input.empty(); ++operation) {
    Operate(input, engine, expected);
    if (operation % kCheckEvery == 0) engine.Check();
  }
  engine.Check();
  return 0;
}
