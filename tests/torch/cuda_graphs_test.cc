// What the adapter tells of graphs' pools, and when: before the native allocator is, where memory may go.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "allocator/torch/cuda_allocator.h"
#include "tests/torch/fake_graphs.h"
#include "tests/torch/fake_native.h"

namespace stalloc {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Writes down what it hears into the native allocator's list, so that the order shows.
class Interleaved final : public LaunchListener {
 public:
  explicit Interleaved(FakeNative& native) : native_(native) {}
  Answer BeforeLaunch(std::uint32_t, GraphId, StreamHandle) noexcept override { return {}; }
  void AfterLaunch(std::uint32_t, GraphId, StreamHandle) noexcept override {}
  bool PoolOpens(std::uint32_t pool) noexcept override {
    Hear(pool, " opens");
    return true;
  }
  void PoolCloses(std::uint32_t pool) noexcept override { Hear(pool, " closes"); }
  void SeesRestorable(std::uint32_t pool) noexcept override { Hear(pool, " may be set back"); }
  void PoolLeft(std::uint32_t pool) noexcept override { Hear(pool, " goes"); }
  bool Unfollowable(std::uint32_t pool, const char* why) noexcept override {
    Hear(pool, ": ", why);
    return true;
  }

 private:
  template <typename... Parts>
  void Hear(const Parts&... parts) {
    native_.heard.push_back(c10::str(parts...));
  }
  FakeNative& native_;
};

class CudaGraphsTest : public ::testing::Test {
 protected:
  CudaGraphsTest() {
    ours_.FollowGraphs(&guard_);
    ours_.graph_pools().SetListener(0, &listener_);
  }
  void Open(version::MempoolId pool) {
    ours_.beginAllocateToPool(0, pool, [](cudaStream_t) { return true; });
  }
  std::vector<std::string> Heard() { return std::exchange(native_.heard, {}); }

  FakeGraphs cuda_;
  FakeNative native_;
  StallocCudaAllocator ours_{&native_, nullptr, "2.0"};
  Interleaved listener_{native_};
  GraphGuard guard_{ours_.graph_pools(), FakeGraphs::Functions(), [](cudaStream_t) { return false; }};
};

TEST_F(CudaGraphsTest, APoolIsToldOfBeforeItOpensAndAfterItCloses) {
  Open({0, 9});
  ours_.endAllocateToPool(0, {0, 9});
  EXPECT_THAT(Heard(), ElementsAre("1 opens", "pool 9 is open", "pool 9 is closed", "1 closes"));
}

TEST_F(CudaGraphsTest, ACaptureIsOfTheAllocatorsPool) {
  Open({0, 8});
  ours_.endAllocateToPool(0, {0, 8});
  Open({0, 9});
  cudaGraph_t graph = nullptr;
  ASSERT_EQ(guard_.BeginCapture(StreamOf(16), cudaStreamCaptureModeGlobal), cudaSuccess);
  ASSERT_EQ(guard_.EndCapture(StreamOf(16), &graph), cudaSuccess);
  ours_.endAllocateToPool(0, {0, 9});
  EXPECT_EQ(ours_.graph_pools().Find(2)->figures().captures, 1u);
  EXPECT_EQ(ours_.graph_pools().Find(1)->figures().captures, 0u);
}

TEST_F(CudaGraphsTest, APoolThatTheNativeAllocatorRefusesIsClosedAgain) {
  native_.refuses_pools = true;
  EXPECT_THROW(Open({0, 9}), std::runtime_error);
  EXPECT_THAT(Heard(), ElementsAre("1 opens", "1 closes"));
}

TEST_F(CudaGraphsTest, OnlyTheLastUserLeavesAPool) {
  Open({0, 9});
  ours_.endAllocateToPool(0, {0, 9});
  (void)Heard();
  native_.pool_uses = 2;
  ours_.releasePool(0, {0, 9});
  EXPECT_THAT(Heard(), ElementsAre("pool 9 on 0 is left"));
  native_.pool_uses = 1;
  ours_.releasePool(0, {0, 9});
  EXPECT_THAT(Heard(), ElementsAre("1 goes", "pool 9 on 0 is left"));
  ours_.releasePool(0, {0, 7});
  EXPECT_THAT(Heard(), ElementsAre("pool 7 on 0 is left")) << "never opened";
}

// Cudagraph trees take it after each capture; few ever set it back.
TEST_F(CudaGraphsTest, APoolWhoseStateIsTakenIsFollowedUntilItIsSetBack) {
  Open({0, 9});
  ours_.endAllocateToPool(0, {0, 9});
  (void)Heard();
  (void)ours_.getCheckpointState(0, {0, 7});
  EXPECT_THAT(Heard(), IsEmpty()) << "another one";
  (void)ours_.getCheckpointState(0, {0, 9});
  EXPECT_THAT(Heard(), ElementsAre("1 opens", "1 may be set back", "1 closes")) << "what is carried is lent no more";
  (void)ours_.getCheckpointState(0, {0, 9});
  EXPECT_THAT(Heard(), IsEmpty()) << "once";
  (void)ours_.setCheckpointPoolState(0, nullptr);
  EXPECT_THAT(Heard(), ElementsAre("1: its state was set back"));
}

TEST(CudaGraphsUnfollowedTest, NothingIsKeptWithoutAGuard) {
  FakeNative native;
  StallocCudaAllocator ours{&native, nullptr, "2.0"};
  ours.FollowGraphs();
  EXPECT_FALSE(ours.follows_graphs()) << "this native allocator is none that we know";
  ours.beginAllocateToPool(0, {0, 9}, [](cudaStream_t) { return true; });
  ours.endAllocateToPool(0, {0, 9});
  ours.releasePool(0, {0, 9});
  EXPECT_THAT(ours.graph_pools().All(), IsEmpty());
  EXPECT_THAT(native.heard, ElementsAre("pool 9 is open", "pool 9 is closed", "pool 9 on 0 is left"));
}

}  // namespace
}  // namespace stalloc
