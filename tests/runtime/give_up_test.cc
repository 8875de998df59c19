// What a plan costs a program that it was not made for, given up or not: the memory held, against a run of the same
// program that never had a plan. Upstream is malloc that holds exactly what lives in it: no allocator holds less.
#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <string>
#include <vector>

#include "allocator/driver/host_driver.h"
#include "allocator/runtime/device_runtime.h"
#include "tests/runtime/fake_upstream.h"
#include "tests/runtime/log_capture.h"
#include "tests/runtime/pattern.h"
#include "tests/runtime/plan_builder.h"

namespace stalloc {
namespace give_up {

constexpr int kWeights = 40;   // blocks of 1 MiB that the set-up allocates and nobody frees
constexpr int kPlanned = 200;  // requests of 512 KiB in each planned iteration
constexpr double kMostExtra = 1.02;
constexpr double kMostExtraKept = 1.04;  // an arena has gaps, and grows where it would wait

// A program: `planned` iterations as planned, then others until the plan is given up and ten more. Every so many blocks
// of the first iteration, or of those until the plan is given up, stay for ever.
struct Program {
  int planned = 0;
  int stride = 0;
  int other_stride = 0;
  Bytes staying_bytes = 512 * kKiB;  // of the first iteration's

  [[nodiscard]] bool Stays(int request) const { return stride != 0 && request % stride == stride / 2; }
  [[nodiscard]] Bytes PlannedBytes(int request) const { return Stays(request) ? staying_bytes : 512 * kKiB; }
};

DevicePlan PlanOf(const Program& program) {
  PlanBuilder plan;
  for (int i = 0; i < kWeights; ++i) plan.Persistent(kMiB);
  for (int i = 0; i < kPlanned; ++i) plan.Each(program.PlannedBytes(i));
  return plan.Build();
}

// One process: a runtime with or without the plan, the blocks that stay, and the most that was held in a while.
class Process {
 public:
  // `dynamic`: what has no slot is the arena's, too, which grows for it.
  Process(const DevicePlan* plan, bool dynamic)
      : driver_(HostDriver::Create({.capacity = kGiB, .granularity = 64 * kKiB})) {
    runtime_ = std::make_unique<DeviceRuntime>(DeviceRuntime::Parts{
        .device = kCpuDevice, .upstream = &upstream_, .driver = driver_.get(), .plan = plan, .dynamic = dynamic});
  }
  ~Process() {
    for (const Kept& kept : kept_) {
      EXPECT_TRUE(HasPattern(kept.pointer, kept.bytes, kept.key));
      runtime_->Free(kept.pointer);
    }
    Iteration();
    EXPECT_EQ(gave_up() ? driver_->GetCounts().handle_bytes : 0, 0u);
  }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  void Iteration() { runtime_->OnMark(IterationMark(iteration_++)); }
  void* Allocate(Bytes bytes) {
    void* const pointer = runtime_->Allocate(bytes, 0, Origin::kProgram);
    held_peak_ = std::max(held_peak_, Held());
    return pointer;
  }
  void Keep(void* pointer, Bytes bytes) {
    const auto key = static_cast<std::uint8_t>(kept_.size() + 1);
    FillPattern(pointer, bytes, key);
    kept_.push_back({pointer, bytes, key});
  }
  void SetUp() {
    for (int i = 0; i < kWeights; ++i) Keep(Allocate(kMiB), kMiB);
  }
  // An iteration as planned.
  void PlannedIteration(const Program& program, bool first) {
    RunIteration(first ? program.stride : 0, [&](int request) { return program.PlannedBytes(request); });
  }
  // An iteration of another model: other sizes, as much memory or a part of it. Every `stride`-th block stays for ever,
  // if any.
  void OtherIteration(std::mt19937_64& random, Bytes part, int stride = 0) {
    RunIteration(stride, [&](int /*request*/) { return (400 * kKiB + random() % (200 * kKiB)) / part; });
  }

  [[nodiscard]] bool gave_up() const { return runtime_->Stats().gave_up; }
  [[nodiscard]] Bytes arena_bytes() const { return runtime_->Stats().arena_bytes; }
  [[nodiscard]] Bytes held_peak() const { return held_peak_; }
  void ForgetPeak() { held_peak_ = 0; }

 private:
  struct Kept {
    void* pointer;
    Bytes bytes;
    std::uint8_t key;
  };
  template <typename SizeOf>
  void RunIteration(int stride, SizeOf&& size_of) {
    Iteration();
    struct Block {
      void* pointer;
      Bytes bytes;
    };
    std::vector<Block> blocks;
    for (int i = 0; i < kPlanned; ++i) {
      const Bytes bytes = size_of(i);
      blocks.push_back({Allocate(bytes), bytes});
    }
    for (int i = 0; i < kPlanned; ++i) {
      const Block& block = blocks[static_cast<std::size_t>(i)];
      if (stride != 0 && i % stride == stride / 2) {
        Keep(block.pointer, block.bytes);
      } else {
        runtime_->Free(block.pointer);
      }
    }
  }
  [[nodiscard]] Bytes Held() const {
    return (runtime_->arena() != nullptr ? runtime_->arena()->mapped_bytes() : 0) + upstream_.HeldBytes().current;
  }

  LogCapture log_;
  FakeUpstream upstream_;
  std::unique_ptr<HostDriver> driver_;
  std::unique_ptr<DeviceRuntime> runtime_;
  std::vector<Kept> kept_;
  Bytes held_peak_ = 0;
  int iteration_ = 0;
};

struct Outcome {
  Bytes held = 0;
  Bytes arena = 0;
  bool gave_up = false;
};
// The most that is held in the last ten iterations.
Outcome Train(const DevicePlan* plan, bool dynamic, Bytes part, const Program& program) {
  std::mt19937_64 random(7);
  Process process(plan, dynamic);
  process.SetUp();
  for (int i = 0; i < program.planned; ++i) process.PlannedIteration(program, i == 0);
  for (int i = 0; i < 4; ++i) process.OtherIteration(random, part, program.other_stride);
  const bool gave_up = process.gave_up();
  process.ForgetPeak();
  for (int i = 0; i < 10; ++i) process.OtherIteration(random, part);
  return {process.held_peak(), process.arena_bytes(), gave_up};
}

// `part` of the plan's memory is what the other program needs.
void ExpectAsLittleAsWithoutAPlan(const Program& program, bool dynamic, Bytes part, bool gives_up) {
  SCOPED_TRACE("planned iterations " + std::to_string(program.planned) + ", of so many blocks one kept " +
               std::to_string(program.stride) + ", later " + std::to_string(program.other_stride));
  const DevicePlan plan = PlanOf(program);
  const Outcome with = Train(&plan, dynamic, part, program);
  const Outcome without = Train(nullptr, false, part, program);
  ASSERT_EQ(with.gave_up, gives_up);
  const double most = gives_up ? kMostExtra : kMostExtraKept;
  EXPECT_LE(static_cast<double>(with.held), most * static_cast<double>(without.held));
  std::printf("held in the end: %.1f MiB, %.1f of it arena; without a plan %.1f MiB\n",
              static_cast<double>(with.held) / kMiB, static_cast<double>(with.arena) / kMiB,
              static_cast<double>(without.held) / kMiB);
}

// With what lies beside the slots served by the arena, too, nobody gains by giving up a plan whose arena is filled.
class GiveUpTest : public ::testing::TestWithParam<bool> {
 protected:
  static void ExpectLittleMoreThanWithoutAPlan(const Program& program) {
    ExpectAsLittleAsWithoutAPlan(program, GetParam(), 1, !GetParam());
  }
};

INSTANTIATE_TEST_SUITE_P(Dynamic, GiveUpTest, ::testing::Bool());

TEST(LargeArenaTest, IsGivenUpThoughItServes) { ExpectAsLittleAsWithoutAPlan({}, true, 3, true); }

TEST_P(GiveUpTest, WeightsInTheArenaHoldNoMoreOfItThanTheyNeed) { ExpectLittleMoreThanWithoutAPlan({}); }

TEST_P(GiveUpTest, ARunThatTurnsIntoAnotherHoldsNoMoreThanItWouldHave) {
  ExpectLittleMoreThanWithoutAPlan({.planned = 5});
}

// One to 24 of them, each in a chunk of its own.
TEST_P(GiveUpTest, BlocksThatStayForEverInTheMiddleOfTheArenaHoldTheirChunksOnly) {
  for (const int stride : {200, 25, 8}) ExpectLittleMoreThanWithoutAPlan({.planned = 5, .stride = stride});
  for (const int stride : {50, 8}) {
    ExpectLittleMoreThanWithoutAPlan({.planned = 5, .stride = stride, .staying_bytes = 64 * kKiB});
  }
}

// 4, 12 and 24 of them in the iterations before the plan is given up, wherever room was.
TEST_P(GiveUpTest, BlocksThatThePlanDidNotKnowAndThatStayHoldTheirChunksOnly) {
  for (const int stride : {200, 66, 25}) {
    ExpectLittleMoreThanWithoutAPlan({.planned = 5, .other_stride = stride});
    ExpectLittleMoreThanWithoutAPlan({.other_stride = stride});
  }
}

TEST_P(GiveUpTest, AnArenaNobodyLivesInGoesBackWhole) {
  const DevicePlan plan = PlanOf({});
  std::mt19937_64 random(8);
  Process process(&plan, GetParam());
  for (int i = 0; i < 3; ++i) process.OtherIteration(random, 2);
  ASSERT_TRUE(process.gave_up());
  EXPECT_EQ(process.arena_bytes(), 0u);
}

}  // namespace give_up
}  // namespace stalloc
