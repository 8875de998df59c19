#include "allocator/driver/cuda_events.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>
#include <vector>

#include "tests/gpu/driver/cuda_under_test.h"

namespace stalloc {
namespace {

class CudaEventsTest : public CudaStreamsTest {
 protected:
  bool BecomesDone(CudaEvents::Event event) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while (std::chrono::steady_clock::now() < deadline) {
      if (events_->Done(event)) return true;
    }
    return false;
  }
};

TEST_F(CudaEventsTest, AnEventIsDoneWhenTheWorkBeforeItIs) {
  Work(0);
  const CudaEvents::Event event = events_->Record(Handle(0));
  ASSERT_NE(event, 0u);
  EXPECT_FALSE(events_->Done(event)) << "64 GiB are not written that fast";
  EXPECT_TRUE(BecomesDone(event));
  events_->Recycle(event);
  const CudaEvents::Event again = events_->Record(Handle(0));
  EXPECT_EQ(again, event) << "from the pool";
  events_->Recycle(again);
}

TEST_F(CudaEventsTest, AStreamThatWaitsIsBehindTheOther) {
  Work(0);
  const CudaEvents::Event event = events_->Record(Handle(0));
  ASSERT_TRUE(events_->Wait(Handle(1), event));
  const CudaEvents::Event behind = events_->Record(Handle(1));
  EXPECT_FALSE(events_->Done(behind));
  EXPECT_TRUE(BecomesDone(behind));
  EXPECT_TRUE(events_->Done(event));
  events_->Recycle(event);
  events_->Recycle(behind);
}

TEST_F(CudaEventsTest, NoneIsDone) {
  EXPECT_TRUE(events_->Done(0));
  EXPECT_TRUE(events_->Wait(Handle(0), 0));
  events_->Recycle(0);
}

TEST_F(CudaEventsTest, ACapturedStreamIsLeftAloneAndOthersWorkBesideTheCapture) {
  const CudaEvents::Event early = events_->Record(Handle(1));
  {
    const cuda::ContextScope current(*api_, driver_->context());
    ASSERT_EQ(api_->StreamBeginCapture(streams_[0], cuda::kCaptureModeGlobal), cuda::kSuccess);
  }
  Work(0);  // captured, not run
  EXPECT_TRUE(events_->Capturing(Handle(0)));
  EXPECT_FALSE(events_->Capturing(Handle(1)));
  EXPECT_EQ(events_->Record(Handle(0)), 0u);
  EXPECT_FALSE(events_->Wait(Handle(0), early));
  EXPECT_TRUE(BecomesDone(early)) << "a query is illegal in a global capture, unless this thread opts out";
  const CudaEvents::Event beside = events_->Record(Handle(1));
  EXPECT_NE(beside, 0u);
  EXPECT_TRUE(BecomesDone(beside));
  std::thread([&] { EXPECT_TRUE(events_->Done(early)); }).join();
  cuda::Graph graph = nullptr;
  EXPECT_EQ(api_->StreamEndCapture(streams_[0], &graph), cuda::kSuccess) << "the capture was broken";
  EXPECT_NE(graph, nullptr);
  (void)api_->GraphDestroy(graph);
  events_->Recycle(early);
  events_->Recycle(beside);
}

TEST_F(CudaEventsTest, ThreadsRecordAndRecycleAtOnce) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 500; ++i) {
        const CudaEvents::Event event = events_->Record(Handle(t % 2));
        ASSERT_NE(event, 0u);
        ASSERT_TRUE(BecomesDone(event));
        events_->Recycle(event);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace stalloc
