// Traces that begin late or end early, and the names of what lies in blocks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <utility>
#include <vector>

#include "tests/record/recorder_fixture.h"

namespace stalloc {
namespace {

using testing::ElementsAre;

class RecorderWindowTest : public RecorderFixture {
 protected:
  void OpenWith(bool waits, std::uint64_t max_events) {
    RecorderOptions options = Options();
    options.waits = waits;
    options.max_events = max_events;
    Result<std::unique_ptr<Recorder>> opened = Recorder::Open(std::move(options));
    ASSERT_TRUE(opened.ok()) << opened.error();
    recorder_ = std::move(opened).value();
  }

  void MarkIteration(int index) { recorder_->Marked(MakeMark(MarkKind::kIteration, MarkEdge::kBegin, index)); }

  void Name(std::uint64_t block, Offset offset, TensorRole role, const std::string& name) {
    recorder_->Named(At(block), {.offset = offset, .bytes = 8, .role = role, .name = recorder_->Text(name)});
  }
};

// (allocation, offset, role, name)
std::vector<std::tuple<std::uint64_t, Offset, TensorRole, std::string>> NamesOf(const Trace& trace) {
  std::vector<std::tuple<std::uint64_t, Offset, TensorRole, std::string>> names;
  for (const NamedTensor& tensor : trace.tensors) {
    names.emplace_back(tensor.allocation, tensor.offset, tensor.role, trace.texts.at(tensor.name));
  }
  return names;
}

TEST_F(RecorderWindowTest, NamesGoToTheBlockThatIsLiveThere) {
  Open();
  recorder_->Allocated(0, At(0x1000), 100, 0, 0);
  Name(0x1000, 0, TensorRole::kGradient, "up.weight");
  Name(0x1000, 0, TensorRole::kGradient, "up.weight");  // said again
  Name(0x1000, 64, TensorRole::kGradient, "up.bias");
  Name(0x5000, 0, TensorRole::kParameter, "elsewhere");
  recorder_->Freed(At(0x1000));
  Name(0x1000, 0, TensorRole::kParameter, "gone");
  recorder_->Allocated(0, At(0x1000), 200, 0, 0);
  Name(0x1000, 0, TensorRole::kGradient, "up.weight");
  const Trace trace = CloseAndRead();
  EXPECT_THAT(NamesOf(trace), ElementsAre(std::tuple(0, 0, TensorRole::kGradient, "up.weight"),
                                          std::tuple(0, 64, TensorRole::kGradient, "up.bias"),
                                          std::tuple(1, 0, TensorRole::kGradient, "up.weight")));
}

TEST_F(RecorderWindowTest, NamesAloneMakeAChunk) {
  Open();
  recorder_->Allocated(0, At(0x1000), 100, 0, 0);
  recorder_->Flush();
  Name(0x1000, 0, TensorRole::kBuffer, "mean");
  recorder_->Flush();
  EXPECT_EQ(NamesOf(ReadBack()).size(), 1u);
}

TEST_F(RecorderWindowTest, AWaitingRecorderWritesNothing) {
  OpenWith(/*waits=*/true, 0);
  recorder_->Allocated(0, At(0x1000), 100, 0, 0);
  MarkIteration(0);
  recorder_->Held(0, 4096);
  const Trace trace = CloseAndRead();
  EXPECT_TRUE(trace.complete) << trace.truncation;
  EXPECT_TRUE(trace.events.empty());
  EXPECT_TRUE(trace.marks.empty());
}

// An optimizer's state is told from what else is live: its marks are around it again, each time that it made some.
TEST_F(RecorderWindowTest, ALateTraceHasTheMarksAroundState) {
  Mark begin = MakeMark(MarkKind::kLayer, MarkEdge::kBegin, 0, "optimizer_state");
  begin.pass = Pass::kOther;
  Mark end = begin;
  end.edge = MarkEdge::kEnd;
  OpenWith(/*waits=*/true, 0);
  recorder_->Allocated(0, At(0x1000), 100, 0, 0);
  recorder_->Marked(MakeMark(MarkKind::kLayer, MarkEdge::kBegin, 0, "up"));  // of a pass: not kept
  recorder_->Allocated(0, At(0x2000), 200, 0, 0);
  for (const std::uint64_t block : {0x3000u, 0x5000u}) {
    recorder_->Marked(begin);
    recorder_->Allocated(0, At(block), 300, 0, 0);
    recorder_->Allocated(0, At(block + 0x1000), 400, 0, 0);
    recorder_->Marked(end);
  }
  recorder_->Freed(At(0x3000));
  recorder_->Marked(begin);
  recorder_->Marked(end);  // made nothing
  recorder_->Allocated(0, At(0x7000), 500, 0, 0);
  recorder_->Begin();
  MarkIteration(2);
  const Trace trace = CloseAndRead();
  std::vector<std::string> rows;
  for (const TraceEvent& event : trace.events) {
    if (event.kind == EventKind::kAlloc) rows.push_back(std::to_string(event.bytes));
    if (event.kind != EventKind::kMark) continue;
    const Mark& mark = trace.marks.at(event.mark);
    rows.push_back(mark.name + (mark.edge == MarkEdge::kBegin ? "(" : ")"));
  }
  EXPECT_THAT(rows, ElementsAre("100", "200", "optimizer_state(", "400", "optimizer_state)", "optimizer_state(", "300",
                                "400", "optimizer_state)", "500", "("));
  EXPECT_EQ(trace.live_before, 6u);
}

// What is live when a random run's window begins, against a map; then rows as they come.
TEST_F(RecorderWindowTest, ALateTraceBeginsWithWhatIsLive) {
  for (unsigned seed = 1; seed <= 5; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937_64 random(seed);
    OpenWith(/*waits=*/true, 0);
    struct Block {
      std::uint64_t order;
      Bytes bytes;
      StreamHandle stream;
      std::uint32_t flags;
      bool used_elsewhere;
    };
    std::map<std::uint64_t, Block> live;
    std::uint64_t order = 0;
    for (int step = 0; step < 5'000; ++step) {
      const std::uint64_t address = (1 + random() % 200) * 512;
      const auto found = live.find(address);
      if (found == live.end()) {
        const Block block{order++, random() % 100'000, random() % 3,
                          step % 7 == 0   ? kAllocParallel
                          : step % 7 == 1 ? kAllocCaptured
                                          : 0,
                          false};
        recorder_->Allocated(0, At(address), block.bytes, block.stream, block.flags);
        live[address] = block;
      } else if (random() % 4 == 0) {
        recorder_->StreamRecorded(At(address), 9);
        recorder_->StreamRecorded(At(address), 9);
        found->second.used_elsewhere = true;
      } else {
        recorder_->Freed(At(address));
        live.erase(found);
      }
    }
    recorder_->Begin();
    MarkIteration(2);
    recorder_->Freed(At(live.begin()->first));
    recorder_->Allocated(0, At(0x900000), 77, 0, 0);
    recorder_->Begin();  // it has begun
    const Trace trace = CloseAndRead();

    std::map<std::uint64_t, std::pair<std::uint64_t, Block>> by_order;
    for (const auto& [address, block] : live) by_order[block.order] = {address, block};
    std::size_t row = 0;
    std::uint64_t allocation = 0;
    std::uint64_t freed_allocation = 0;
    for (const auto& [number, entry] : by_order) {
      const auto& [address, block] = entry;
      const TraceEvent& event = trace.events.at(row++);
      ASSERT_EQ(event.kind, EventKind::kAlloc);
      ASSERT_EQ(event.bytes, block.bytes);
      ASSERT_EQ(trace.streams.at(event.stream).handle, block.stream);
      ASSERT_EQ(event.flags, block.flags);
      ASSERT_EQ(event.address, block.flags == kAllocCaptured ? address : 0);
      if (address == live.begin()->first) freed_allocation = allocation;
      if (block.used_elsewhere) {
        ASSERT_EQ(trace.events.at(row).kind, EventKind::kRecordStream);
        ASSERT_EQ(trace.streams.at(trace.events.at(row).stream).handle, 9u);
        ASSERT_EQ(trace.events.at(row++).allocation, allocation);
      }
      ++allocation;
    }
    ASSERT_EQ(trace.events.size(), row + 3);
    EXPECT_EQ(trace.events[row].kind, EventKind::kMark);
    EXPECT_EQ(trace.events[row + 1].kind, EventKind::kFree);
    EXPECT_EQ(trace.events[row + 1].allocation, freed_allocation);
    EXPECT_EQ(trace.events[row + 2].bytes, 77u);
    EXPECT_EQ(trace.marks.size(), 1u);
    EXPECT_EQ(trace.live_before, live.size());
  }
}

TEST_F(RecorderWindowTest, AtTheLimitATraceEndsWithItsLastWholeIteration) {
  OpenWith(/*waits=*/false, 100);
  recorder_->Allocated(0, At(0x1000), 100, 0, 0);
  for (int iteration = 0; iteration < 20; ++iteration) {
    MarkIteration(iteration);
    for (std::uint64_t i = 0; i < 10; ++i) {
      recorder_->Allocated(0, At(0x10000 + i * 512), 100, 0, 0);
      Name(0x10000 + i * 512, 0, TensorRole::kGradient, std::string("g").append(std::to_string(iteration)));
      recorder_->Freed(At(0x10000 + i * 512));
    }
  }
  const Trace trace = CloseAndRead();
  EXPECT_TRUE(trace.complete) << trace.truncation;
  // One row of set-up and 21 of each iteration: the fifth would end at 106.
  ASSERT_EQ(trace.events.size(), 1u + 4 * 21);
  EXPECT_EQ(trace.marks.size(), 4u);
  EXPECT_EQ(trace.tensors.size(), 40u);
}

TEST_F(RecorderWindowTest, ATraceWithoutAWholeIterationEndsAtTheLimitWithoutAnEnd) {
  OpenWith(/*waits=*/false, 10);
  MarkIteration(0);  // what is before it is set-up
  for (std::uint64_t i = 0; i < 50; ++i) recorder_->Allocated(0, At(0x10000 + i * 512), 100, 0, 0);
  const Trace trace = CloseAndRead();
  EXPECT_FALSE(trace.complete);
  EXPECT_EQ(trace.events.size(), 10u);
}

}  // namespace
}  // namespace stalloc
