// The caller's path takes no heap memory: counted by replacing operator new.
#include <gtest/gtest.h>

#include <cstdlib>
#include <new>

#include "tests/record/recorder_fixture.h"

namespace {
thread_local std::uint64_t heap_requests = 0;
}  // namespace

void* operator new(std::size_t size) {
  ++heap_requests;
  if (void* memory = std::malloc(size == 0 ? 1 : size)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace stalloc {
namespace {

class RecorderHeapTest : public RecorderFixture {};

TEST_F(RecorderHeapTest, RecordingAnEventTakesNoHeapMemory) {
  Open(/*ring_events=*/256);
  recorder_->Allocated(0, At(512), 1, 0, 0);  // the thread's first event may set up thread-local storage
  const std::uint64_t before = heap_requests;
  for (std::uint64_t i = 2; i < 5'000; ++i) {
    recorder_->Allocated(0, At(i * 512), i, 0, 0);
    recorder_->StreamRecorded(At(i * 512), 1);
    recorder_->Held(0, i);
    recorder_->Freed(At(i * 512));
  }
  EXPECT_EQ(heap_requests, before);
  recorder_->Marked(MakeMark(MarkKind::kInit, MarkEdge::kEnd));
  EXPECT_GT(heap_requests, before) << "the counter does count";
}

}  // namespace
}  // namespace stalloc
