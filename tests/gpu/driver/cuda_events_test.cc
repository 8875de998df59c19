#include "allocator/driver/cuda_events.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>
#include <vector>

#include "tests/gpu/driver/cuda_under_test.h"

namespace stalloc {
namespace {

class CudaEventsTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string absent_because;
    driver_ = OpenCuda(0, &absent_because);
    if (driver_ == nullptr) {
      GTEST_SKIP() << absent_because;
    }
    api_ = &driver_->api();
    const cuda::ContextScope current(*api_, driver_->context());
    ASSERT_EQ(api_->StreamCreate(&first_, 1), cuda::kSuccess);
    ASSERT_EQ(api_->StreamCreate(&second_, 1), cuda::kSuccess);
    ASSERT_EQ(api_->MemAllocAsync(&memory_, kBytes, nullptr), cuda::kSuccess);
    ASSERT_EQ(api_->StreamSynchronize(nullptr), cuda::kSuccess);
    events_ = std::make_unique<CudaEvents>(*api_, driver_->context());
  }
  void TearDown() override {
    if (driver_ == nullptr) {
      return;
    }
    const cuda::ContextScope current(*api_, driver_->context());
    EXPECT_TRUE(driver_->Synchronize().ok());
    EXPECT_EQ(api_->MemFreeAsync(memory_, nullptr), cuda::kSuccess);
    EXPECT_EQ(api_->StreamDestroy(first_), cuda::kSuccess);
    EXPECT_EQ(api_->StreamDestroy(second_), cuda::kSuccess);
  }

  static constexpr Bytes kBytes = Bytes{1} << 30;

  // Some milliseconds of work.
  void Work(cuda::Stream stream) {
    const cuda::ContextScope current(*api_, driver_->context());
    for (int i = 0; i < 64; ++i) {
      ASSERT_EQ(api_->MemsetD8Async(memory_, static_cast<unsigned char>(i), kBytes, stream), cuda::kSuccess);
    }
  }
  static StreamHandle Handle(cuda::Stream stream) { return reinterpret_cast<StreamHandle>(stream); }
  bool BecomesDone(CudaEvents::Event event) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while (std::chrono::steady_clock::now() < deadline) {
      if (events_->Done(event)) {
        return true;
      }
    }
    return false;
  }

  std::unique_ptr<CudaDriver> driver_;
  const cuda::Api* api_ = nullptr;
  std::unique_ptr<CudaEvents> events_;
  cuda::Stream first_ = nullptr;
  cuda::Stream second_ = nullptr;
  cuda::DevicePointer memory_ = 0;
};

TEST_F(CudaEventsTest, AnEventIsDoneWhenTheWorkBeforeItIs) {
  Work(first_);
  const CudaEvents::Event event = events_->Record(Handle(first_));
  ASSERT_NE(event, 0u);
  EXPECT_FALSE(events_->Done(event)) << "64 GiB are not written that fast";
  EXPECT_TRUE(BecomesDone(event));
  events_->Recycle(event);
  const CudaEvents::Event again = events_->Record(Handle(first_));
  EXPECT_EQ(again, event) << "from the pool";
  events_->Recycle(again);
}

TEST_F(CudaEventsTest, AStreamThatWaitsIsBehindTheOther) {
  Work(first_);
  const CudaEvents::Event event = events_->Record(Handle(first_));
  ASSERT_TRUE(events_->Wait(Handle(second_), event));
  const CudaEvents::Event behind = events_->Record(Handle(second_));
  EXPECT_FALSE(events_->Done(behind));
  EXPECT_TRUE(BecomesDone(behind));
  EXPECT_TRUE(events_->Done(event));
  events_->Recycle(event);
  events_->Recycle(behind);
}

TEST_F(CudaEventsTest, NoneIsDone) {
  EXPECT_TRUE(events_->Done(0));
  EXPECT_TRUE(events_->Wait(Handle(first_), 0));
  events_->Recycle(0);
}

TEST_F(CudaEventsTest, ACapturedStreamIsLeftAloneAndOthersWorkBesideTheCapture) {
  const CudaEvents::Event early = events_->Record(Handle(second_));
  {
    const cuda::ContextScope current(*api_, driver_->context());
    ASSERT_EQ(api_->StreamBeginCapture(first_, cuda::kCaptureModeGlobal), cuda::kSuccess);
  }
  Work(first_);  // captured, not run
  EXPECT_TRUE(events_->Capturing(Handle(first_)));
  EXPECT_FALSE(events_->Capturing(Handle(second_)));
  EXPECT_EQ(events_->Record(Handle(first_)), 0u);
  EXPECT_FALSE(events_->Wait(Handle(first_), early));
  EXPECT_TRUE(BecomesDone(early)) << "a query is illegal in a global capture, unless this thread opts out";
  const CudaEvents::Event beside = events_->Record(Handle(second_));
  EXPECT_NE(beside, 0u);
  EXPECT_TRUE(BecomesDone(beside));
  std::thread([&] { EXPECT_TRUE(events_->Done(early)); }).join();
  cuda::Graph graph = nullptr;
  EXPECT_EQ(api_->StreamEndCapture(first_, &graph), cuda::kSuccess) << "the capture was broken";
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
        const CudaEvents::Event event = events_->Record(Handle(t % 2 == 0 ? first_ : second_));
        ASSERT_NE(event, 0u);
        ASSERT_TRUE(BecomesDone(event));
        events_->Recycle(event);
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
}

}  // namespace
}  // namespace stalloc
