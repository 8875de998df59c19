// BackingTest: four slots side by side over the host driver and real bytes, and the memory behind them; no runtime.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <memory>
#include <thread>
#include <vector>

#include "allocator/arena/arena.h"
#include "allocator/backing/chunk_bytes.h"
#include "allocator/backing/idle_chunks.h"
#include "allocator/driver/forwarding_driver.h"
#include "allocator/driver/host_driver.h"
#include "allocator/engine/plan_engine.h"
#include "tests/driver/faulty_driver.h"
#include "tests/runtime/pattern.h"
#include "tests/runtime/plan_builder.h"

namespace stalloc {

// Counts waits for the device, which can be refused as while a stream is captured.
class WaitingDriver final : public ForwardingDriver {
 public:
  using ForwardingDriver::ForwardingDriver;
  DriverStatus Synchronize() noexcept override {
    if (capturing) return {DriverCode::kFailed, 900, "Synchronize"};
    ++waits;
    std::this_thread::sleep_for(delay);
    return ForwardingDriver::Synchronize();
  }
  bool capturing = false;
  std::chrono::milliseconds delay{0};
  int waits = 0;
};

class BackingTest : public ::testing::Test {
 protected:
  static constexpr Bytes kPage = Bytes{64} << 10;  // a chunk
  static constexpr Bytes kSlot = 4 * kPage;
  static constexpr std::size_t kSlots = 4;
  static constexpr Bytes kHeight = kSlots * kSlot;

  // `capacity`: of the device.
  void Start(StreamFence* fence = nullptr, Bytes capacity = 64 * kHeight, Bytes granularity = kPage) {
    chunks_ = nullptr;
    engine_ = nullptr;
    arena_ = nullptr;
    blocks_ = {};
    host_ = HostDriver::Create({.capacity = capacity, .granularity = granularity});
    ASSERT_NE(host_, nullptr);
    faulty_ = std::make_unique<FaultyDriver>(*host_);
    driver_ = std::make_unique<WaitingDriver>(*faulty_);
    PlanBuilder builder;
    for (std::size_t i = 0; i < kSlots; ++i) builder.Each(kSlot);
    DevicePlan plan = builder.Build();
    plan.predicted.peak_live_bytes = kHeight;
    plan.predicted.expandable_bytes = expandable_;
    DriverStatus status;
    arena_ = Arena::Create(*driver_, 16 * kHeight, &status, ChunkBytesOf(plan), borrow_);
    ASSERT_NE(arena_, nullptr);
    ASSERT_TRUE(MapPlan(*arena_, plan).ok());
    engine_ = std::make_unique<PlanEngine>(
        plan, reinterpret_cast<void*>(arena_->base()), fence,
        DynamicSpaceOptions{.limit_bytes = arena_->borrow_begin(), .mapped_bytes = kHeight});
    chunks_ = std::make_unique<IdleChunks>(*driver_, fence, *arena_, *engine_, plan, keep_free_);
    Iteration();
  }
  void Iteration() {
    engine_->OnMark(IterationMark(iteration_++));
    chunks_->OnMark();
    next_ = 0;
  }
  // Slots that no block was asked for in this iteration have one up to this one; false where it is elsewhere.
  bool FillTo(std::size_t slot) {
    for (; next_ <= slot; ++next_) {
      void* const block = engine_->Allocate(kSlot, 0).pointer;
      if (block != reinterpret_cast<void*>(arena_->base() + next_ * kSlot)) return false;
      FillPattern(block, kSlot, static_cast<std::uint8_t>(next_ + 1));
      blocks_[next_] = block;
    }
    return true;
  }
  void Drop(std::size_t slot) {
    EXPECT_TRUE(HasPattern(blocks_[slot], kSlot, static_cast<std::uint8_t>(slot + 1))) << slot;
    EXPECT_EQ(engine_->Free(blocks_[slot]), kSlot);
    blocks_[slot] = nullptr;
  }
  void DropAll() {
    for (std::size_t slot = 0; slot < kSlots; ++slot) {
      if (blocks_[slot] != nullptr) Drop(slot);
    }
  }
  // Blocks in slots 0 and 2; 1 and 3 are idle.
  void EverySecond() {
    ASSERT_TRUE(FillTo(3));
    Drop(1);
    Drop(3);
  }
  // So much of the device is another process's; and all but `but` of it goes back.
  std::vector<PhysicalHandle> Take(Bytes bytes) {
    std::vector<PhysicalHandle> taken(bytes / kPage);
    for (PhysicalHandle& handle : taken) EXPECT_TRUE(host_->Create(kPage, &handle).ok());
    return taken;
  }
  void GiveBack(std::vector<PhysicalHandle>* taken, Bytes but) {
    for (; taken->size() > but / kPage; taken->pop_back()) EXPECT_TRUE(host_->Release(taken->back()).ok());
  }
  // No block's bytes are lost, what is backed may be used, and no more chunks than that are held of which the arena
  // does not know.
  void ExpectWhole(std::uint64_t lost = 0) {
    EXPECT_EQ(engine_->CheckInvariants(), "");
    for (const Arena::Range& chunk : arena_->Chunks()) {
      EXPECT_TRUE(engine_->WithdrawUnderBlocks(chunk.offset, chunk.bytes)) << chunk.offset / kPage << " is withdrawn";
      engine_->Restore(chunk.offset, chunk.bytes);
    }
    EXPECT_LE((host_->GetCounts().handle_bytes - arena_->mapped_bytes()) / kPage, lost);
    for (std::size_t slot = 0; slot < kSlots; ++slot) {
      if (blocks_[slot] == nullptr) continue;
      EXPECT_TRUE(HasPattern(blocks_[slot], kSlot, static_cast<std::uint8_t>(slot + 1))) << slot;
    }
  }

  std::unique_ptr<HostDriver> host_;
  std::unique_ptr<FaultyDriver> faulty_;   // over host_
  std::unique_ptr<WaitingDriver> driver_;  // over faulty_
  std::unique_ptr<Arena> arena_;
  std::unique_ptr<PlanEngine> engine_;
  std::unique_ptr<IdleChunks> chunks_;
  std::array<void*, kSlots> blocks_{};  // by slot
  std::size_t next_ = 0;
  int iteration_ = 0;
  Bytes borrow_ = 0;                            // addresses for other allocators' memory
  Bytes expandable_ = 2 * kHeight;              // held by PyTorch for the traced run
  Bytes keep_free_ = FreeMemory::kDefaultKeep;  // more than the device has: it is full
};

}  // namespace stalloc
