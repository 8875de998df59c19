// What a plan costs once it was given up: the memory held, against a run of the same program that never had a plan.
// Upstream is malloc that holds exactly what lives in it: no allocator holds less.
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
namespace {

constexpr Bytes kKiB = 1024;
constexpr Bytes kMiB = kKiB * kKiB;
constexpr int kWeights = 40;   // blocks of 1 MiB that the set-up allocates and nobody frees
constexpr int kPlanned = 200;  // requests of 512 KiB in each planned iteration
constexpr double kMostExtra = 1.02;

DevicePlan ThePlan() {
  PlanBuilder plan;
  for (int i = 0; i < kWeights; ++i) plan.Persistent(kMiB);
  for (int i = 0; i < kPlanned; ++i) plan.Each(512 * kKiB);
  return plan.Build();
}

// One process: a runtime with or without the plan, the blocks that stay, and the most that was held in a while.
class Process {
 public:
  explicit Process(const DevicePlan* plan) : driver_(HostDriver::Create({.capacity = 0, .granularity = 64 * kKiB})) {
    runtime_ = std::make_unique<DeviceRuntime>(
        DeviceRuntime::Parts{.device = kCpuDevice, .upstream = &upstream_, .driver = driver_.get(), .plan = plan});
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
  // An iteration as planned; every `stride`-th block stays for ever, if any.
  void PlannedIteration(int stride = 0) {
    Iteration();
    std::vector<void*> blocks;
    for (int i = 0; i < kPlanned; ++i) blocks.push_back(Allocate(512 * kKiB));
    for (int i = 0; i < kPlanned; ++i) {
      void* const block = blocks[static_cast<std::size_t>(i)];
      if (stride != 0 && i % stride == stride / 2) {
        Keep(block, 512 * kKiB);
      } else {
        runtime_->Free(block);
      }
    }
  }
  // An iteration of another model: other sizes, as much memory.
  void OtherIteration(std::mt19937_64& random) {
    Iteration();
    std::vector<void*> blocks;
    for (int i = 0; i < kPlanned; ++i) blocks.push_back(Allocate(400 * kKiB + random() % (200 * kKiB)));
    for (void* block : blocks) runtime_->Free(block);
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

// A program: `planned` iterations as planned, then others until the plan is given up and ten more. Returns the most
// that was held in those ten.
struct Outcome {
  Bytes held = 0;
  Bytes arena = 0;
  bool gave_up = false;
};
Outcome Train(const DevicePlan* plan, int planned, int stride) {
  std::mt19937_64 random(7);
  Process process(plan);
  process.SetUp();
  for (int i = 0; i < planned; ++i) process.PlannedIteration(i == 0 ? stride : 0);
  for (int i = 0; i < 4; ++i) process.OtherIteration(random);
  const bool gave_up = process.gave_up();
  process.ForgetPeak();
  for (int i = 0; i < 10; ++i) process.OtherIteration(random);
  return {process.held_peak(), process.arena_bytes(), gave_up};
}

void ExpectLittleMoreThanWithoutAPlan(int planned, int stride) {
  SCOPED_TRACE("planned iterations " + std::to_string(planned) + ", every so many blocks kept " +
               std::to_string(stride));
  const DevicePlan plan = ThePlan();
  const Outcome with = Train(&plan, planned, stride);
  const Outcome without = Train(nullptr, planned, stride);
  ASSERT_TRUE(with.gave_up);
  EXPECT_LE(static_cast<double>(with.held), kMostExtra * static_cast<double>(without.held));
  std::printf("held after giving up: %.1f MiB, %.1f of it arena; without a plan %.1f MiB\n",
              static_cast<double>(with.held) / kMiB, static_cast<double>(with.arena) / kMiB,
              static_cast<double>(without.held) / kMiB);
}

TEST(GiveUpTest, WeightsInTheArenaHoldNoMoreOfItThanTheyNeed) { ExpectLittleMoreThanWithoutAPlan(0, 0); }

TEST(GiveUpTest, ARunThatTurnsIntoAnotherHoldsNoMoreThanItWouldHave) { ExpectLittleMoreThanWithoutAPlan(5, 0); }

TEST(GiveUpTest, BlocksThatStayForEverInTheMiddleOfTheArenaHoldTheirChunksOnly) {
  for (const int stride : {200, 100, 70}) ExpectLittleMoreThanWithoutAPlan(5, stride);
}

TEST(GiveUpTest, AnArenaNobodyLivesInGoesBackWhole) {
  const DevicePlan plan = ThePlan();
  std::mt19937_64 random(8);
  Process process(&plan);
  for (int i = 0; i < 3; ++i) process.OtherIteration(random);
  ASSERT_TRUE(process.gave_up());
  EXPECT_EQ(process.arena_bytes(), 0u);
}

}  // namespace
}  // namespace stalloc
