#include "allocator/arena/page_heap.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <vector>

#include "allocator/driver/forwarding_driver.h"
#include "allocator/driver/host_driver.h"
#include "allocator/driver/stream_fence.h"
#include "tests/driver/faulty_driver.h"

namespace stalloc {
namespace {

constexpr Bytes kPage = 64 * 1024;
constexpr StreamHandle kStream = 11;
constexpr StreamHandle kOther = 12;

class PageHeapTest : public testing::Test {
 protected:
  void Make(Bytes capacity_pages, Bytes limit) {
    heap_.reset();  // before the drivers that it uses
    host_ = HostDriver::Create({.capacity = capacity_pages * kPage, .granularity = kPage});
    driver_ = std::make_unique<FaultyDriver>(*host_);
    heap_ = PageHeap::Create(*driver_, limit);
    ASSERT_NE(heap_, nullptr);
  }
  void SetUp() override { Make(1024, 0); }
  void TearDown() override {
    if (heap_ != nullptr) {
      EXPECT_EQ(heap_->CheckInvariants(), "");
    }
    heap_.reset();
    EXPECT_EQ(driver_->counts(), FaultyDriver::Counts{}) << "leaked";
  }
  void* Allocate(Bytes bytes) { return heap_->Allocate(bytes, kStream); }
  [[nodiscard]] std::uint64_t Calls() const { return driver_->calls(); }

  std::unique_ptr<HostDriver> host_;
  std::unique_ptr<FaultyDriver> driver_;
  std::unique_ptr<PageHeap> heap_;
};

TEST_F(PageHeapTest, BlocksOfEverySizeAreUsableAlignedAndDisjoint) {
  const Bytes sizes[] = {0,
                         1,
                         511,
                         512,
                         513,
                         4096,
                         kPage - 512,
                         kPage - 1,
                         kPage,
                         kPage + 1,
                         kPage + 512,
                         2 * kPage,
                         3 * kPage - 1,
                         5 * kPage + 700,
                         17 * kPage,
                         100 * kPage + 512 * 3};
  std::map<char*, Bytes> blocks;
  for (const Bytes size : sizes) {
    auto* const block = static_cast<char*>(Allocate(size));
    ASSERT_NE(block, nullptr) << size;
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(block) % kBlockAlignment, 0u);
    std::memset(block, static_cast<int>(blocks.size() + 1), size);
    blocks.emplace(block, BlockBytes(size));
  }
  const char* end = nullptr;
  for (const auto& [block, bytes] : blocks) {
    EXPECT_GE(block, end);
    end = block + bytes;
    EXPECT_TRUE(heap_->Contains(block));
  }
  EXPECT_EQ(heap_->CheckInvariants(), "");
  Bytes live = 0;
  for (const auto& [block, bytes] : blocks) {
    live += bytes;
  }
  EXPECT_EQ(heap_->GetStats().live_bytes, live);
  EXPECT_EQ(heap_->GetStats().live_blocks, blocks.size());
  for (const auto& [block, bytes] : blocks) {
    EXPECT_EQ(heap_->Free(block), bytes);
  }
  EXPECT_EQ(heap_->GetStats().live_bytes, 0u);
  EXPECT_EQ(heap_->GetStats().peak_live_bytes, live);
}

TEST_F(PageHeapTest, AForeignPointerIsNoneOfOurs) {
  int local = 0;
  EXPECT_EQ(heap_->Free(&local), 0u);
  EXPECT_EQ(heap_->Free(nullptr), 0u);
  EXPECT_FALSE(heap_->Contains(&local));
  auto* const block = static_cast<char*>(Allocate(4 * kPage));
  EXPECT_EQ(heap_->Free(block + 512), 0u) << "the middle of a block is no block";
  EXPECT_EQ(heap_->Free(block), 4 * kPage);
  EXPECT_EQ(heap_->Free(block), 0u) << "freed already";
}

TEST_F(PageHeapTest, AnAbsurdRequestIsOutOfMemory) {
  EXPECT_EQ(Allocate(~Bytes{0}), nullptr);
  EXPECT_EQ(Allocate(~Bytes{0} - 512), nullptr);
  EXPECT_EQ(Allocate(Bytes{1} << 50), nullptr);
  EXPECT_NE(Allocate(512), nullptr);
}

TEST_F(PageHeapTest, AFreedBlockServesTheNextRequestOfItsSizeWithoutADriverCall) {
  void* const first = Allocate(10 * kPage + 512);
  heap_->Free(first);
  driver_->FailNothing();
  EXPECT_EQ(Allocate(10 * kPage + 300), first);
  EXPECT_EQ(Calls(), 0u);
  EXPECT_EQ(heap_->GetStats().cache_hits, 1u);
}

TEST_F(PageHeapTest, AWarmTrainingStepCostsNoDriverCall) {
  const auto step = [&] {
    std::vector<void*> blocks;
    for (Bytes i = 0; i < 200; ++i) {
      blocks.push_back(Allocate(i % 5 == 0 ? 512 * (1 + i % 90) : (1 + i % 7) * kPage + 512 * (i % 3)));
      ASSERT_NE(blocks.back(), nullptr);
      if (i % 3 == 2) {
        heap_->Free(blocks[i / 2]);
        blocks[i / 2] = nullptr;
      }
    }
    for (void* block : blocks) {
      heap_->Free(block);
    }
  };
  step();
  step();  // the order of the frees decides which gap a small block gets: the second step settles that
  driver_->FailNothing();
  step();
  EXPECT_EQ(Calls(), 0u);
}

TEST_F(PageHeapTest, AnotherStreamIsServedFromTheCacheOnlyAfterASynchronisation) {
  Make(20, 0);
  void* const first = Allocate(16 * kPage);
  heap_->Free(first);
  // 16 of 20 pages are cached for another stream: the heap synchronises, and then the block serves as it is.
  void* const second = heap_->Allocate(16 * kPage, kOther);
  EXPECT_EQ(second, first);
  EXPECT_EQ(heap_->GetStats().synchronizations, 1u);
  EXPECT_EQ(heap_->GetStats().takedowns, 0u);
}

TEST_F(PageHeapTest, WithMemoryToSpareAnotherStreamGetsMemoryOfItsOwn) {
  void* const first = Allocate(4 * kPage);
  heap_->Free(first);
  EXPECT_NE(heap_->Allocate(4 * kPage, kOther), first);
  void* const small = Allocate(4096);
  heap_->Free(small);
  EXPECT_NE(heap_->Allocate(4096, kOther), small);
  EXPECT_EQ(heap_->GetStats().synchronizations, 0u);
}

TEST_F(PageHeapTest, ARecordedBlockIsNotReusedBeforeASynchronisation) {
  Make(18, 0);
  void* const large = Allocate(6 * kPage);
  void* const small = Allocate(1024);
  heap_->RecordStream(large, kOther);
  heap_->RecordStream(small, kOther);
  heap_->Free(large);
  heap_->Free(small);
  EXPECT_NE(Allocate(6 * kPage), large);
  EXPECT_NE(Allocate(1024), small);
  EXPECT_EQ(heap_->GetStats().synchronizations, 0u);
  // Now memory is short: one synchronisation, and the recorded block serves again.
  EXPECT_EQ(Allocate(6 * kPage), large);
  EXPECT_EQ(heap_->GetStats().synchronizations, 1u);
  EXPECT_EQ(Allocate(1024), small);
}

// Waits for this device and for others are counted; those for others fail while `refuses`.
class OtherDevices final : public ForwardingDriver {
 public:
  using ForwardingDriver::ForwardingDriver;
  DriverStatus SynchronizeOthers() noexcept override {
    ++waits;
    return refuses ? DriverStatus{DriverCode::kFailed, 900, "SynchronizeOthers"} : DriverStatus{};
  }
  int waits = 0;
  bool refuses = false;
};

TEST_F(PageHeapTest, ABlockUsedByAnotherDeviceWaitsForThatAsWell) {
  const auto host = HostDriver::Create({.capacity = 8 * kPage, .granularity = kPage});
  OtherDevices driver(*host);
  const auto heap = PageHeap::Create(driver, 0);
  void* block = heap->Allocate(6 * kPage, kStream);
  heap->RecordStream(block, kOther);
  heap->Free(block);
  block = heap->Allocate(6 * kPage, kStream);
  ASSERT_NE(block, nullptr);
  EXPECT_EQ(driver.waits, 0);
  heap->RecordStream(block, StreamOfDevice(1, kOther));
  heap->Free(block);
  driver.refuses = true;
  EXPECT_EQ(heap->Allocate(6 * kPage, kStream), nullptr);
  EXPECT_EQ(heap->ReleaseCached(), 0u);
  driver.refuses = false;
  const int before = driver.waits;
  EXPECT_EQ(heap->Allocate(6 * kPage, kStream), block);
  EXPECT_EQ(driver.waits, before + 1);
  EXPECT_EQ(heap->CheckInvariants(), "");
}

TEST_F(PageHeapTest, RecordingABlockOnItsOwnStreamChangesNothing) {
  void* const block = Allocate(2 * kPage);
  heap_->RecordStream(block, kStream);
  heap_->Free(block);
  EXPECT_EQ(Allocate(2 * kPage), block);
}

TEST_F(PageHeapTest, ADeviceThatCannotBeSynchronisedKeepsWhatIsInUseApart) {
  Make(20, 0);
  void* const block = Allocate(16 * kPage);
  std::memset(block, 1, 16 * kPage);
  heap_->Free(block);
  driver_->FailCall(0, DriverCode::kFailed, FaultyDriver::kNever);
  EXPECT_EQ(heap_->Allocate(16 * kPage, kOther), nullptr);
  EXPECT_EQ(heap_->CheckInvariants(), "");
  driver_->FailNothing();
  EXPECT_NE(heap_->Allocate(16 * kPage, kOther), nullptr);
}

// The case that a caching allocator loses: every second block is freed, and then a request comes that no hole between
// the rest can hold.
TEST_F(PageHeapTest, ARequestThatNoContiguousHoleHoldsIsServed) {
  Make(128, 0);
  constexpr int kBlocks = 64;
  std::vector<void*> blocks;
  for (int i = 0; i < kBlocks; ++i) {
    blocks.push_back(Allocate(2 * kPage));
    ASSERT_NE(blocks.back(), nullptr);
    std::memset(blocks.back(), i, 2 * kPage);
  }
  EXPECT_EQ(Allocate(512), nullptr) << "the device is full";

  // First fit over one contiguous range of the same size, given the same requests: its largest hole is one block.
  std::vector<bool> contiguous(128, true);
  for (int i = 0; i < kBlocks; i += 2) {
    heap_->Free(blocks[static_cast<std::size_t>(i)]);
    contiguous[static_cast<std::size_t>(2 * i)] = contiguous[static_cast<std::size_t>(2 * i + 1)] = false;
  }
  std::size_t hole = 0;
  std::size_t largest_hole = 0;
  for (const bool used : contiguous) {
    hole = used ? 0 : hole + 1;
    largest_hole = std::max(largest_hole, hole);
  }
  ASSERT_EQ(largest_hole, 2u);

  auto* const large = static_cast<char*>(Allocate(64 * kPage));
  ASSERT_NE(large, nullptr);
  std::memset(large, 0xEE, 64 * kPage);
  for (int i = 1; i < kBlocks; i += 2) {
    const auto* const bytes = static_cast<const char*>(blocks[static_cast<std::size_t>(i)]);
    ASSERT_TRUE(std::all_of(bytes, bytes + 2 * kPage, [i](char byte) { return byte == static_cast<char>(i); }));
  }
  EXPECT_EQ(heap_->GetStats().synchronizations, 1u);
  EXPECT_EQ(heap_->GetStats().physical_bytes, 128 * kPage);
}

TEST_F(PageHeapTest, OddBlocksFillTheirSharedPagesToTheLastGrain) {
  // Eight blocks of 1.25 pages are ten pages, but two of the remainders share a page only as a tail and a head: the
  // first ones take a page for two. The gaps of half a page serve the small blocks, and nothing is lost.
  Make(12, 0);
  for (int i = 0; i < 8; ++i) {
    ASSERT_NE(Allocate(kPage + kPage / 4), nullptr) << i;
  }
  EXPECT_EQ(heap_->GetStats().physical_bytes, 12 * kPage);
  for (int i = 0; i < 8; ++i) {
    ASSERT_NE(Allocate(kPage / 4), nullptr) << i;
  }
  EXPECT_EQ(heap_->GetStats().shared_gap_bytes, 0u);
  EXPECT_EQ(heap_->GetStats().live_bytes, 12 * kPage);
  EXPECT_EQ(Allocate(512), nullptr);
}

TEST_F(PageHeapTest, ABlockIsSplitOverTwoGapsBeforeTheHeapGivesUp) {
  Make(4, 0);
  std::vector<void*> blocks;
  for (int i = 0; i < 4; ++i) {
    blocks.push_back(Allocate(kPage * 3 / 4));
    ASSERT_NE(blocks.back(), nullptr);
  }
  // Four gaps of a quarter, two of them at the lower end of a page and two at the upper: half a page fits in two of
  // them, twice.
  for (int i = 0; i < 2; ++i) {
    auto* const half = static_cast<char*>(Allocate(kPage / 2));
    ASSERT_NE(half, nullptr) << i;
    std::memset(half, 0x77, kPage / 2);
    blocks.push_back(half);
  }
  EXPECT_EQ(heap_->GetStats().live_bytes, 4 * kPage);
  EXPECT_EQ(heap_->CheckInvariants(), "");
  for (void* block : blocks) {
    EXPECT_NE(heap_->Free(block), 0u);
  }
  EXPECT_NE(Allocate(4 * kPage), nullptr);
}

TEST_F(PageHeapTest, WholePagesCanComeFromTwoGapsToo) {
  Make(3, 0);
  ASSERT_NE(Allocate(kPage / 2), nullptr);
  ASSERT_NE(Allocate(kPage * 3 / 4), nullptr);
  ASSERT_NE(Allocate(kPage / 2), nullptr);  // fills the first page
  ASSERT_NE(Allocate(kPage / 2), nullptr);  // a third page
  // Free: a quarter of one page and half of another, on no full page. Three quarters fit.
  auto* const block = static_cast<char*>(Allocate(kPage * 3 / 4));
  ASSERT_NE(block, nullptr);
  std::memset(block, 1, kPage * 3 / 4);
  EXPECT_EQ(heap_->GetStats().shared_gap_bytes, 0u);
}

TEST_F(PageHeapTest, TheLimitIsPhysicalAndCanChange) {
  Make(1024, 10 * kPage);
  void* const block = Allocate(10 * kPage);
  ASSERT_NE(block, nullptr);
  EXPECT_EQ(Allocate(512), nullptr);
  heap_->SetLimit(20 * kPage);
  void* const second = Allocate(10 * kPage);
  ASSERT_NE(second, nullptr);
  heap_->Free(second);
  EXPECT_EQ(heap_->GetStats().physical_bytes, 20 * kPage);
  heap_->SetLimit(12 * kPage);
  EXPECT_LE(heap_->GetStats().physical_bytes, 12 * kPage) << "cached memory above the limit goes back at once";
  EXPECT_EQ(Allocate(3 * kPage), nullptr);
  EXPECT_NE(Allocate(2 * kPage), nullptr);
  heap_->SetLimit(kPage);  // below what is live: nothing can be done, nothing more is given
  EXPECT_EQ(heap_->GetStats().live_bytes, 12 * kPage);
  EXPECT_EQ(Allocate(512), nullptr);
  heap_->SetLimit(0);
  EXPECT_NE(Allocate(100 * kPage), nullptr);
}

TEST_F(PageHeapTest, ReleaseCachedGivesEverythingBackThatIsNotLive) {
  void* const live = Allocate(3 * kPage);
  void* const small = Allocate(512);
  std::vector<void*> blocks;
  for (Bytes i = 1; i < 20; ++i) {
    blocks.push_back(Allocate(i * kPage / 2));
  }
  for (void* block : blocks) {
    heap_->Free(block);
  }
  const Bytes before = heap_->GetStats().physical_bytes;
  const Bytes released = heap_->ReleaseCached();
  EXPECT_EQ(heap_->GetStats().physical_bytes, before - released);
  EXPECT_EQ(heap_->GetStats().physical_bytes, 4 * kPage);
  EXPECT_EQ(heap_->GetStats().cached_bytes, 0u);
  EXPECT_EQ(driver_->counts().handle_bytes, 4 * kPage);
  heap_->Free(live);
  heap_->Free(small);
  heap_->ReleaseCached();
  EXPECT_EQ(driver_->counts().handle_bytes, 0u);
  EXPECT_EQ(driver_->counts().mapped_bytes, 0);
}

TEST_F(PageHeapTest, SizesThatNeverComeBackDoNotFillTheDevice) {
  // Each step has sizes of its own, as a mixture of experts has; the live bytes stay at 60 pages of 64.
  Make(64, 0);
  for (Bytes step = 0; step < 200; ++step) {
    const Bytes first = (20 + step % 13) * kPage + 512 * (step % 100);
    const Bytes second = 60 * kPage - RoundUp(first, kPage) - 512 * (step % 77);
    void* const a = Allocate(first);
    void* const b = Allocate(second);
    ASSERT_NE(a, nullptr) << step;
    ASSERT_NE(b, nullptr) << step;
    heap_->Free(a);
    heap_->Free(b);
  }
  EXPECT_LE(heap_->GetStats().peak_physical_bytes, 64 * kPage);
}

TEST_F(PageHeapTest, RefreshAccessCoversLiveCachedAndSharedMemory) {
  (void)Allocate(2 * kPage);
  heap_->Free(Allocate(3 * kPage));
  (void)Allocate(512);
  driver_->FailNothing();
  ASSERT_TRUE(heap_->RefreshAccess().ok());
  EXPECT_EQ(Calls(), 3u);
  driver_->FailCall(0);
  EXPECT_FALSE(heap_->RefreshAccess().ok());
  EXPECT_EQ(driver_->calls(), 3u) << "one that fails keeps it from none of the others";
}

TEST_F(PageHeapTest, AHeapWithoutAddressesIsNotMade) {
  driver_->FailCall(0);
  EXPECT_EQ(PageHeap::Create(*driver_, 0), nullptr);
  driver_->FailCall(1, DriverCode::kOutOfMemory, FaultyDriver::kNever);
  EXPECT_EQ(PageHeap::Create(*driver_, 0), nullptr);
  driver_->FailCall(1, DriverCode::kOutOfMemory, 2);
  EXPECT_NE(PageHeap::Create(*driver_, 0), nullptr) << "a quarter of the addresses will do";
}

}  // namespace
}  // namespace stalloc
