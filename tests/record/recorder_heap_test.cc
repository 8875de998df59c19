// The caller's path takes no heap memory.
#include <gtest/gtest.h>

#include "tests/record/heap_counter.h"
#include "tests/record/recorder_fixture.h"

namespace stalloc {
namespace {

class RecorderHeapTest : public RecorderFixture {};

TEST_F(RecorderHeapTest, RecordingAnEventTakesNoHeapMemory) {
  Open(/*ring_events=*/256);
  recorder_->Allocated(0, At(512), 1, 0, 0);  // the thread's first event may set up thread-local storage
  const std::uint64_t before = HeapRequestsOfThisThread();
  for (std::uint64_t i = 2; i < 5'000; ++i) {
    recorder_->Allocated(0, At(i * 512), i, 0, 0);
    recorder_->StreamRecorded(At(i * 512), 1);
    recorder_->Held(0, i);
    recorder_->Freed(At(i * 512));
  }
  EXPECT_EQ(HeapRequestsOfThisThread(), before);
  recorder_->Marked(MakeMark(MarkKind::kInit, MarkEdge::kEnd));
  EXPECT_GT(HeapRequestsOfThisThread(), before) << "the counter does count";
}

}  // namespace
}  // namespace stalloc
