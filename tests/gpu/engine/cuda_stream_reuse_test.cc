// Bytes that pass between streams of a device, whose old owner writes late: what the new owner writes must stay. Each
// case also runs over a fence that says that it waits and does not: there the old owner's write must win, or the case
// would show nothing.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "allocator/capi/cuda_stream_fence.h"
#include "allocator/engine/plan_engine.h"
#include "tests/gpu/driver/cuda_under_test.h"

namespace stalloc {
namespace {

constexpr Bytes kBlock = Bytes{32} << 20;

// Events as they should be, but nobody waits for them.
class IdleFence final : public StreamFence {
 public:
  explicit IdleFence(StreamFence& real) : real_(real) {}
  Event Record(StreamHandle stream) noexcept override { return real_.Record(stream); }
  bool Wait(StreamHandle, Event) noexcept override { return true; }
  bool Done(Event event) noexcept override { return real_.Done(event); }
  void Recycle(Event event) noexcept override { real_.Recycle(event); }

 private:
  StreamFence& real_;
};

// Entries of one size, all in the same bytes, on these streams of the plan.
DevicePlan PlanInTurn(const std::vector<std::uint32_t>& streams, bool with_edges) {
  DevicePlan plan;
  plan.arena_bytes = kBlock;
  plan.cycle.emplace_back();
  for (std::uint32_t i = 0; i < streams.size(); ++i) {
    Entry entry;
    entry.bytes = entry.min_bytes = entry.max_bytes = kBlock;
    entry.slot = i;
    entry.stream = streams[i];
    plan.cycle[0].entries.push_back(entry);
    plan.slots.push_back({0, kBlock});
    if (with_edges && i > 0 && streams[i] != streams[i - 1]) {
      plan.stream_edges.push_back({i - 1, i, streams[i - 1], streams[i]});
    }
  }
  return plan;
}

class CudaStreamReuseTest : public CudaStreamsTest, public testing::WithParamInterface<bool> {
 protected:
  void SetUp() override {
    CudaStreamsTest::SetUp();
    if (driver_ == nullptr) return;
    const cuda::ContextScope current(*api_, driver_->context());
    ASSERT_EQ(api_->MemAllocAsync(&arena_, kBlock, nullptr), cuda::kSuccess);
    ASSERT_EQ(api_->StreamSynchronize(nullptr), cuda::kSuccess);
    real_ = std::make_unique<CudaStreamFence>(*events_);
    idle_ = std::make_unique<IdleFence>(*real_);
  }
  void TearDown() override {
    if (driver_ != nullptr) {
      const cuda::ContextScope current(*api_, driver_->context());
      EXPECT_TRUE(driver_->Synchronize().ok());
      EXPECT_EQ(api_->MemFreeAsync(arena_, nullptr), cuda::kSuccess);
    }
    CudaStreamsTest::TearDown();
  }

  [[nodiscard]] bool waits() const { return GetParam(); }
  std::unique_ptr<PlanEngine> EngineOver(const DevicePlan& plan) {
    StreamFence* const fence = waits() ? static_cast<StreamFence*>(real_.get()) : idle_.get();
    auto engine = std::make_unique<PlanEngine>(plan, reinterpret_cast<void*>(arena_), fence);
    engine->OnMark({MarkKind::kIteration, MarkEdge::kBegin, Pass::kNone, 0, 0, "", false});
    return engine;
  }
  void Fill(void* block, unsigned char value, std::size_t stream) {
    const cuda::ContextScope current(*api_, driver_->context());
    ASSERT_NE(block, nullptr);
    ASSERT_EQ(api_->MemsetD8Async(reinterpret_cast<cuda::DevicePointer>(block), value, kBlock, streams_[stream]),
              cuda::kSuccess);
  }
  // After all work, the block holds `value` if streams waited, and what was written late if not.
  void ExpectEnd(void* block, unsigned char value, unsigned char late) {
    const cuda::ContextScope current(*api_, driver_->context());
    ASSERT_TRUE(driver_->Synchronize().ok());
    std::vector<unsigned char> bytes(kBlock);
    ASSERT_EQ(api_->MemcpyDtoH(bytes.data(), reinterpret_cast<cuda::DevicePointer>(block), kBlock), cuda::kSuccess);
    const auto expected = waits() ? value : late;
    EXPECT_EQ(std::count(bytes.begin(), bytes.end(), expected), static_cast<std::ptrdiff_t>(kBlock));
  }

  std::unique_ptr<CudaStreamFence> real_;
  std::unique_ptr<IdleFence> idle_;
  cuda::DevicePointer arena_ = 0;
};

TEST_P(CudaStreamReuseTest, APlannedHandOver) {
  const auto engine = EngineOver(PlanInTurn({0, 1, 0}, /*with_edges=*/true));
  void* first = engine->Allocate(kBlock, Handle(0)).pointer;
  Work(0);
  Fill(first, 1, 0);
  engine->Free(first);
  EXPECT_EQ(engine->Stats().stream_events, 1u) << "at the free";
  Work(0);  // not to be waited for
  void* second = engine->Allocate(kBlock, Handle(1)).pointer;
  EXPECT_EQ(second, first);
  Fill(second, 2, 1);
  ExpectEnd(second, 2, 1);
  Work(1);
  Fill(second, 3, 1);
  engine->Free(second);
  void* third = engine->Allocate(kBlock, Handle(0)).pointer;
  Fill(third, 4, 0);
  ExpectEnd(third, 4, 3);
  EXPECT_EQ(engine->Stats().stream_events, 2u);
  EXPECT_EQ(engine->Stats().stream_waits, 2u);
}

TEST_P(CudaStreamReuseTest, AHandOverThatThePlanDoesNotList) {
  const auto engine = EngineOver(PlanInTurn({0, 1}, /*with_edges=*/false));
  void* first = engine->Allocate(kBlock, Handle(0)).pointer;
  Work(0);
  Fill(first, 1, 0);
  engine->Free(first);
  void* second = engine->Allocate(kBlock, Handle(1)).pointer;
  Fill(second, 2, 1);
  ExpectEnd(second, 2, 1);
}

TEST_P(CudaStreamReuseTest, AStreamThatIsNoneOfThePlans) {
  const auto engine = EngineOver(PlanInTurn({0, 0, 0}, false));
  void* first = engine->Allocate(kBlock, Handle(0)).pointer;
  Work(0);
  Fill(first, 1, 0);
  engine->Free(first);
  void* second = engine->Allocate(kBlock, Handle(2)).pointer;
  Fill(second, 2, 2);
  ExpectEnd(second, 2, 1);
  Work(2);
  Fill(second, 3, 2);
  engine->Free(second);
  void* third = engine->Allocate(kBlock, Handle(0)).pointer;
  Fill(third, 4, 0);
  ExpectEnd(third, 4, 3);
}

TEST_P(CudaStreamReuseTest, ABlockThatWasRecordedOnAnotherStream) {
  const auto engine = EngineOver(PlanInTurn({0, 0}, false));
  void* first = engine->Allocate(kBlock, Handle(0)).pointer;
  engine->RecordStream(first, Handle(1));
  Work(1);
  Fill(first, 1, 1);
  engine->Free(first);
  void* second = engine->Allocate(kBlock, Handle(0)).pointer;
  Fill(second, 2, 0);
  ExpectEnd(second, 2, 1);
}

// The legacy default stream's handle is 0; the streams here do not wait for it on their own.
TEST_P(CudaStreamReuseTest, TheLegacyDefaultStream) {
  const auto engine = EngineOver(PlanInTurn({0, 1}, true));
  void* first = engine->Allocate(kBlock, kLegacyDefaultStream).pointer;
  const cuda::Stream mine = std::exchange(streams_[0], nullptr);
  Work(0);
  Fill(first, 1, 0);
  streams_[0] = mine;
  engine->Free(first);
  void* second = engine->Allocate(kBlock, Handle(1)).pointer;
  Fill(second, 2, 1);
  ExpectEnd(second, 2, 1);
}

INSTANTIATE_TEST_SUITE_P(Fences, CudaStreamReuseTest, testing::Bool(),
                         [](const auto& fence) { return fence.param ? "RealFence" : "NoFence"; });

// Each of two streams takes over from the other, over and over, behind events that are recycled.
class CudaStreamPingPongTest : public CudaStreamReuseTest {};

TEST_P(CudaStreamPingPongTest, AThousandHandOversKeepTheLastWrite) {
  std::vector<std::uint32_t> turns;
  for (std::uint32_t i = 0; i < 1000; ++i) turns.push_back(i % 2);
  const auto engine = EngineOver(PlanInTurn(turns, true));
  void* block = nullptr;
  for (std::uint32_t i = 0; i < 1000; ++i) {
    block = engine->Allocate(kBlock, Handle(i % 2)).pointer;
    Fill(block, static_cast<unsigned char>(i % 251), i % 2);
    if (i % 100 == 0) Work(i % 2);
    if (i < 999) engine->Free(block);
    if (i % 50 == 0) engine->OnMark({MarkKind::kMicrobatch, MarkEdge::kBegin, Pass::kForward, 0, 0, "", false});
  }
  ExpectEnd(block, 999 % 251, 0);
  EXPECT_GE(engine->Stats().stream_waits, 900u) << "but for those that marks found done";
}

INSTANTIATE_TEST_SUITE_P(Fences, CudaStreamPingPongTest, testing::Values(true));

}  // namespace
}  // namespace stalloc
