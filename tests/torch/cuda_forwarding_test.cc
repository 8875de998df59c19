// What only some versions of torch have reaches the native allocator as it was said. Called as torch calls it, through
// its own class; where this torch lacks a function, its test is skipped.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "allocator/torch/cuda_allocator.h"
#include "tests/torch/fake_native.h"

namespace stalloc {
namespace {

using ::testing::ElementsAre;
using version::MempoolId;

const void* At(std::uintptr_t address) { return reinterpret_cast<const void*>(address); }

class CudaForwardingTest : public ::testing::Test {
 protected:
  FakeNative native_;
  StallocCudaAllocator ours_{&native_, nullptr, "2.0"};

  // `call` is for those torches alone that have what it calls. `heard`: what the native allocator hears then.
  template <bool kHere, typename Call>
  void Where(const std::vector<std::string>& heard, Call call) {
    if constexpr (kHere) {
      call(static_cast<version::Native&>(ours_));
      EXPECT_EQ(native_.heard, heard);
    } else {
      GTEST_SKIP() << "this torch has no such function";
    }
  }
};

TEST_F(CudaForwardingTest, SnapshotsAreOfThePoolThatIsAsked) {
  (void)static_cast<version::Native&>(ours_).snapshot({0, 7});
  EXPECT_THAT(native_.heard, ElementsAre("snapshot of 7 with traces"));
}

TEST_F(CudaForwardingTest, SnapshotsLeaveTracesOut) {
  Where<version::SnapshotsMayLeaveTracesOut<version::Native>>({"snapshot of 7 without traces"}, [](auto& allocator) {
    (void)allocator.snapshot({0, 7}, false);
  });
}

TEST_F(CudaForwardingTest, HistoriesAreAsLongAsAskedAndLeaveOutWhatIsNamed) {
  version::RecordHistory(static_cast<version::Native&>(ours_), {.enabled = true,
                                                                .gather = nullptr,
                                                                .max_entries = 5,
                                                                .when = AllocationHistory::RecordContext::NEVER,
                                                                .clear = false,
                                                                .skip_actions = {"alloc", "oom"}});
  const bool may_skip = version::HistoriesMaySkipActions<version::Native>;
  EXPECT_THAT(native_.heard, ElementsAre(may_skip ? "5 entries without alloc oom" : "5 entries without"));
}

TEST_F(CudaForwardingTest, TheNativeAllocatorHearsOfCaptures) {
  Where<version::HearsOfCaptures<version::Native>>({"capture begins on 2", "capture ends on 2"}, [](auto& allocator) {
    allocator.markCaptureBegin(2);
    allocator.markCaptureEnd(2);
  });
}

TEST_F(CudaForwardingTest, TheProgramsWordsArePassedOn) {
  Where<version::HasUserMetadata<version::Native>>({"metadata step 1"}, [](auto& allocator) {
    allocator.setUserMetadata("step 1");
    EXPECT_EQ(allocator.getUserMetadata(), "of the program");
  });
}

TEST_F(CudaForwardingTest, WordsOnANativeBlockArePassedOn) {
  Where<version::Annotates<version::Native>>({"weights on 0x1000"}, [](auto& allocator) {
    EXPECT_TRUE(allocator.supportsUserMetadata());
    allocator.annotateMemory(At(0x1000), "weights");
  });
}

TEST_F(CudaForwardingTest, TheContextOfANativeBlockIsTheNativeAllocators) {
  native_.context = std::make_shared<c10::GatheredContext>();
  Where<version::TellsContexts<version::Native>>(
      {}, [this](auto& allocator) { EXPECT_EQ(allocator.getContextForPointer(At(0x1000)), native_.context); });
}

TEST_F(CudaForwardingTest, AnAddressOutsideTheArenaIsTheNativeAllocatorsToGive) {
  Where<version::AllocatesAtAddresses<version::Native>>({"512 bytes at 0x2000"}, [](auto& allocator) {
    (void)allocator.allocateWithAddress(512, reinterpret_cast<void*>(0x2000));
  });
}

TEST_F(CudaForwardingTest, ObserversOfRejectionsAreTheNativeAllocators) {
  std::int64_t seen = -1;
  Where<version::TellsOomRejections<version::Native>>({}, [&seen](auto& allocator) {
    allocator.attachOomRejectionObserver([&seen](std::int64_t device, auto...) { seen = device; });
    EXPECT_EQ(seen, 1);
  });
}

TEST_F(CudaForwardingTest, MemoryAndPoolsOfTheDeviceAreTheNativeAllocators) {
  Where<version::TellsMemoryInfo<version::Native> && version::KnowsNoSplit<version::Native>>(
      {"no split on 1 in 9"}, [](auto& allocator) {
        EXPECT_EQ(allocator.getMemoryInfo(0), (std::pair<std::size_t, std::size_t>(3, 4)));
        allocator.setNoSplit(1, MempoolId{0, 9});
      });
}

TEST_F(CudaForwardingTest, MemPoolsAreMadeAndLeftByTheNativeAllocator) {
  static_cast<version::Native&>(ours_).createOrIncrefPool(0, {0, 9}, nullptr);
  static_cast<version::Native&>(ours_).releasePool(0, {0, 9});
  EXPECT_THAT(native_.heard, ElementsAre("pool 9 on 0", "pool 9 on 0 is left"));
}

}  // namespace
}  // namespace stalloc
