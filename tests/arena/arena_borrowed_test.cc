// Memory of another allocator in the arena, on real bytes; each driver call failing.
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <vector>

#include "allocator/arena/arena.h"
#include "allocator/driver/host_driver.h"
#include "tests/driver/faulty_driver.h"

namespace stalloc {
namespace {

constexpr Bytes kChunk = Bytes{64} << 10;

// Two chunks of another allocator, borrowed at the arena's end.
class ArenaBorrowedTest : public testing::Test {
 protected:
  void SetUp() override {
    host_ = HostDriver::Create({.capacity = 0, .granularity = kChunk});
    ASSERT_NE(host_, nullptr);
    ASSERT_TRUE(host_->Reserve(4 * kChunk, &other_).ok());
    for (int i = 0; i < 2; ++i) {
      PhysicalHandle handle = 0;
      ASSERT_TRUE(host_->Create(kChunk, &handle).ok());
      ASSERT_TRUE(host_->Map(other_ + static_cast<Bytes>(i) * kChunk, kChunk, handle).ok());
      ASSERT_TRUE(host_->Release(handle).ok());
    }
    ASSERT_TRUE(host_->SetAccess(other_, 2 * kChunk).ok());
    faulty_ = std::make_unique<FaultyDriver>(*host_);
    DriverStatus status;
    arena_ = Arena::Create(*faulty_, kChunk, &status, kChunk, 4 * kChunk);
    ASSERT_NE(arena_, nullptr);
    faulty_->FailNothing();
  }
  [[nodiscard]] Offset begin() const { return arena_->borrow_begin(); }
  [[nodiscard]] static char* BytesAt(Address address) { return reinterpret_cast<char*>(address); }
  [[nodiscard]] DriverStatus Borrow() {
    Bytes borrowed = 0;
    const DriverStatus status = arena_->Borrow(begin(), other_, 4 * kChunk, &borrowed);
    EXPECT_EQ(borrowed, status.ok() ? 2 * kChunk : 0);
    return status;
  }

  std::unique_ptr<HostDriver> host_;
  Address other_ = 0;
  std::unique_ptr<FaultyDriver> faulty_;
  std::unique_ptr<Arena> arena_;
};

TEST_F(ArenaBorrowedTest, IsTheSameMemoryAndNotHeld) {
  ASSERT_TRUE(Borrow().ok());
  BytesAt(other_)[kChunk] = 'a';
  EXPECT_EQ(BytesAt(arena_->base() + begin())[kChunk], 'a');
  EXPECT_EQ(arena_->mapped_bytes(), 0u);
  EXPECT_TRUE(arena_->Chunks().empty());
  arena_->EndBorrowing({begin(), 4 * kChunk});
  EXPECT_EQ(faulty_->counts().mapped_bytes, 0);
  EXPECT_EQ(faulty_->counts().handles, 0);
}

TEST_F(ArenaBorrowedTest, WhatBecomesOwnKeepsItsBytesAndIsHeld) {
  ASSERT_TRUE(Borrow().ok());
  std::memset(BytesAt(other_), 'x', 2 * kChunk);
  const Arena::Range block{begin() + 512, 1024};
  ASSERT_TRUE(arena_->OwnBorrowed({&block, 1}).ok());
  std::memset(BytesAt(other_), 'y', 2 * kChunk);
  EXPECT_EQ(BytesAt(arena_->base() + block.offset)[0], 'x');
  EXPECT_EQ(BytesAt(arena_->base() + block.offset)[1023], 'x');
  EXPECT_EQ(BytesAt(arena_->base() + begin())[kChunk], 'y') << "the other chunk is borrowed yet";
  EXPECT_EQ(arena_->mapped_bytes(), kChunk);
  EXPECT_EQ(arena_->mapped_end(), 0u) << "it is none of the arena's own addresses";
}

TEST_F(ArenaBorrowedTest, WhereACallFailsTheBytesAreThere) {
  std::uint64_t call = 0;
  for (bool fired = true; fired; ++call) {
    TearDown();
    arena_ = nullptr;
    SetUp();
    ASSERT_TRUE(Borrow().ok());
    std::memset(BytesAt(other_), 'x', 2 * kChunk);
    const Arena::Range block{begin() + 512, 1024};
    faulty_->FailCall(call);
    (void)arena_->OwnBorrowed({&block, 1});
    fired = faulty_->fired();
    faulty_->FailNothing();
    EXPECT_EQ(BytesAt(arena_->base() + block.offset)[0], 'x') << call;
    EXPECT_EQ(BytesAt(arena_->base() + block.offset)[1023], 'x') << call;
  }
  EXPECT_GT(call, 8u);
}

}  // namespace
}  // namespace stalloc
