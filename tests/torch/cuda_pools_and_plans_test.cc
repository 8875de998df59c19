// MemPools in a run that takes a plan up (STALLOC_MODE=Auto), as the adapter sees them, on a device of the host's: real
// bytes, pools that open, are captured, shown and left, before and behind the switch.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#include "allocator/driver/forwarding_driver.h"
#include "allocator/torch/cuda_mem_pools.h"
#include "allocator/torch/cuda_pools.h"
#include "tests/runtime/alloc_fixture.h"
#include "tests/runtime/pattern.h"

namespace stalloc {
namespace {

constexpr c10::DeviceIndex kDevice = 0;
constexpr MemPools::Id kPool{0, 7};
constexpr Bytes kBlock = 100 * kKiB;

cudaStream_t Stream() { return reinterpret_cast<cudaStream_t>(std::uintptr_t{5}); }

// Nobody waits for the device while a capture may run, as in cuda_driver.h.
class GatedDriver final : public ForwardingDriver {
 public:
  GatedDriver(VmmDriver& driver, CaptureGate& gate) : ForwardingDriver(driver), gate_(gate) {}
  DriverStatus Synchronize() noexcept override {
    const CaptureGate::Passage passage(&gate_);
    return passage ? ForwardingDriver::Synchronize() : DriverStatus{DriverCode::kFailed, 900, "Synchronize"};
  }

 private:
  CaptureGate& gate_;
};

class PoolsAndPlansTest : public ::testing::Test {
 protected:
  struct Block {
    void* pointer = nullptr;
    Bytes bytes = 0;
    std::uint8_t key = 0;
  };

  void SetUp() override {
    driver_ = HostDriver::Create({.granularity = kPage});
    ASSERT_NE(driver_, nullptr);
    device_ = std::make_unique<GatedDriver>(*driver_, filters_.captures());
    runtime_ = std::make_unique<DeviceRuntime>(DeviceRuntime::Parts{
        .device = kDevice, .upstream = &upstream_, .driver = device_.get(), .awaits_plan = true, .dynamic = true});
    pools_.Made(kDevice, kPool, true);
  }

  // What cuda_allocator.cc does for the program.
  void Open() {
    pools_.Entered(kDevice, kPool);
    filters_.Begin(kDevice, kPool, [](cudaStream_t) { return true; });
  }
  void Close() {
    filters_.End(kDevice, kPool);
    Leave();
  }
  void Leave() {
    for (void* const pointer : pools_.Left(kDevice, kPool)) runtime_->Free(pointer);
  }
  // Filled, so that whoever else is given its bytes is found out.
  Block Allocate(Bytes bytes) {
    const std::optional<PoolFilters::OpenPool> pool = filters_.Accept(kDevice, Stream());
    const bool captured = pool.has_value() && !pools_.Serve(filters_, kDevice, pool->id, Stream());
    const Block block{runtime_->Allocate(bytes, 5, captured ? Origin::kCaptured : Origin::kProgram), bytes, ++key_};
    if (pool.has_value() && runtime_->Owns(block.pointer)) pools_.Add({{block.pointer, bytes, 5}, kDevice}, pool->id);
    FillPattern(block.pointer, bytes, block.key);
    return block;
  }
  Block AllocateInPool(Bytes bytes) {
    Open();
    const Block block = Allocate(bytes);
    Close();
    return block;
  }
  void Free(const Block& block) {
    EXPECT_TRUE(IsWhole(block));
    if (!pools_.Keeps(block.pointer)) runtime_->Free(block.pointer);
  }
  static bool IsWhole(const Block& block) { return HasPattern(block.pointer, block.bytes, block.key); }

  void Iteration() { runtime_->OnMark(IterationMark(iteration_++)); }
  // Of three requests that the plan expects.
  void PlannedIteration() {
    Iteration();
    std::vector<Block> blocks;
    for (int i = 0; i < 3; ++i) blocks.push_back(Allocate(kBlock));
    for (const Block& block : blocks) Free(block);
  }
  std::string TakePlan() {
    return runtime_->TakePlan(PlanBuilder(kDevice).Each(kBlock).Each(kBlock).Each(kBlock).Build(), 0);
  }
  void ExpectAllIsWell() {
    EXPECT_EQ(runtime_->Stats().unknown_frees, 0u);
    for (const PlannedSpace* const space : runtime_->spaces()) EXPECT_EQ(space->engine().CheckInvariants(), "");
  }

  bool capturing_ = false;
  PoolFilters filters_{[this](cudaStream_t) { return capturing_; }};
  MemPools pools_;
  FakeUpstream upstream_;
  std::unique_ptr<HostDriver> driver_;
  std::unique_ptr<GatedDriver> device_;  // over driver_
  std::unique_ptr<DeviceRuntime> runtime_;
  int iteration_ = 0;
  std::uint8_t key_ = 0;
};

TEST_F(PoolsAndPlansTest, BlocksOfAPoolStayWhereTheyAre) {
  const Block in_set_up = AllocateInPool(kMiB);
  EXPECT_TRUE(runtime_->Owns(in_set_up.pointer)) << "in the arena of what stays";
  PlannedIteration();
  const Block in_loop = AllocateInPool(kMiB);
  EXPECT_FALSE(runtime_->Owns(in_loop.pointer));
  ASSERT_EQ(TakePlan(), "");
  for (int i = 0; i < 3; ++i) PlannedIteration();
  const Block after = AllocateInPool(kMiB);
  EXPECT_TRUE(runtime_->arena()->Contains(after.pointer));
  for (const Block& block : {in_set_up, in_loop, after}) Free(block);
  for (int i = 0; i < 2; ++i) PlannedIteration();
  EXPECT_EQ(runtime_->spaces().front()->arena().mapped_bytes(), 0u);
  EXPECT_EQ(runtime_->Stats().planned_hits, 15u);
  Leave();
  ExpectAllIsWell();
}

TEST_F(PoolsAndPlansTest, APoolMayBeOpenMeanwhile) {
  Open();
  const Block before = Allocate(kMiB);
  PlannedIteration();
  ASSERT_EQ(TakePlan(), "") << "what it has served was not captured";
  for (int i = 0; i < 3; ++i) PlannedIteration();
  EXPECT_EQ(runtime_->Stats().planned_hits, 9u) << "its requests are like all others";
  const Block after = Allocate(kMiB);
  EXPECT_TRUE(runtime_->Owns(after.pointer));
  Close();
  Free(before);
  Free(after);
  ExpectAllIsWell();
}

TEST_F(PoolsAndPlansTest, ThePlanWaitsForAPoolThatIsCaptured) {
  PlannedIteration();
  const Block lives = AllocateInPool(kMiB);
  capturing_ = true;
  Open();
  EXPECT_NE(TakePlan(), "") << "nobody knows what it is yet";
  const Block captured = Allocate(kMiB);
  EXPECT_NE(TakePlan(), "");
  EXPECT_EQ(runtime_->arena(), nullptr);
  capturing_ = false;
  Close();
  ASSERT_EQ(TakePlan(), "");
  for (int i = 0; i < 3; ++i) PlannedIteration();
  const Block later = AllocateInPool(kMiB);
  EXPECT_FALSE(runtime_->Owns(captured.pointer));
  EXPECT_FALSE(runtime_->Owns(later.pointer)) << "a graph keeps the pool's addresses";
  for (const Block& block : {lives, captured, later}) Free(block);
  ExpectAllIsWell();
}

// It may be registered with NCCL, or read by a graph.
TEST_F(PoolsAndPlansTest, WhatASnapshotHasShownIsNobodyElsesBehindTheSwitch) {
  const Block shown = AllocateInPool(kMiB);
  ASSERT_TRUE(runtime_->Owns(shown.pointer));
  EXPECT_EQ(pools_.Show(kPool).size(), 1u);
  PlannedIteration();
  ASSERT_EQ(TakePlan(), "");
  Free(shown);
  for (int i = 0; i < 3; ++i) PlannedIteration();
  EXPECT_GE(runtime_->spaces().front()->arena().mapped_bytes(), kMiB);
  EXPECT_TRUE(IsWhole(shown)) << "freed, but kept";
  Leave();
  for (int i = 0; i < 2; ++i) PlannedIteration();
  EXPECT_EQ(runtime_->spaces().front()->arena().mapped_bytes(), 0u);
  ExpectAllIsWell();
}

// Pools open and close, plans are taken up wherever they may be; each block is its owner's until it is freed.
TEST_F(PoolsAndPlansTest, NothingIsGivenOutTwice) {
  std::minstd_rand random(1);
  std::vector<Block> live;
  int taken = 0;
  bool open = false;
  for (int step = 0; step < 6000; ++step) {
    switch (random() % 12) {
      case 0:
        open ? Close() : Open();
        open = !open;
        break;
      case 1:
        capturing_ = open && !capturing_;
        break;
      case 2:
        Iteration();
        break;
      case 3:
        if (random() % 64 == 0 && TakePlan().empty()) ++taken;
        break;
      case 4:
        if (random() % 256 == 0) (void)pools_.Show(kPool);
        break;
      case 5:
        if (random() % 64 == 0) {  // another one takes its place
          Leave();
          pools_.Made(kDevice, kPool, true);
        }
        break;
      default:
        if (live.size() < 24) {
          live.push_back(Allocate((1 + random() % 40) * 8 * kKiB));
          break;
        }
        std::swap(live[random() % live.size()], live.back());
        Free(live.back());
        live.pop_back();
    }
  }
  EXPECT_GE(taken, 2);
  for (const Block& block : live) Free(block);
  ExpectAllIsWell();
}

}  // namespace
}  // namespace stalloc
