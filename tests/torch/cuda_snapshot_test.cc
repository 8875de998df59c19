#include "allocator/torch/cuda_snapshot.h"

#include <c10/util/ApproximateClock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <vector>

#include "allocator/torch/version/native_calls.h"
#include "allocator/torch/version/records.h"

namespace stalloc {
namespace {

using Entry = AllocationHistory::Entry;
using RecordContext = AllocationHistory::RecordContext;

constexpr bool kEntriesHaveWords = version::HasUserMetadata<version::Native>;

struct FakeContext : c10::GatheredContext {
  explicit FakeContext(int which) : number(which) {}
  int number;
};
std::atomic<int> g_gathered{0};
std::shared_ptr<c10::GatheredContext> GatherFake() { return std::make_shared<FakeContext>(++g_gathered); }
int NumberOf(const AllocationHistory::Context& context) {
  return context == nullptr ? 0 : static_cast<const FakeContext&>(*context).number;
}

const void* At(std::uintptr_t address) { return reinterpret_cast<const void*>(address); }

AllocationHistory::Options Recording(RecordContext when, std::size_t max_entries = 100) {
  return {.enabled = true,
          .gather = &GatherFake,
          .max_entries = max_entries,
          .when = when,
          .clear = false,
          .skip_actions = {}};
}

TEST(ArenaSegmentTest, TilesTheMappedBytesWithBlocksAndGaps) {
  const std::vector<LiveBlock> live = {
      {.offset = 512, .bytes = 1024, .requested = 1000, .stream = 7, .freed_pending = false},
      {.offset = 1536, .bytes = 512, .requested = 1, .stream = 7, .freed_pending = true},
      {.offset = 4096, .bytes = 4096, .requested = 4096, .stream = 7, .freed_pending = false}};
  const AllocationHistory history;
  const auto segment = ArenaSegment(2, 0x700000000000, {0, 1 << 20}, live, history);
  EXPECT_EQ(segment.device, 2);
  EXPECT_EQ(segment.address, 0x700000000000u);
  EXPECT_EQ(segment.total_size, 1u << 20);
  EXPECT_EQ(static_cast<void*>(segment.stream), reinterpret_cast<void*>(7));
  EXPECT_TRUE(segment.is_large);
  EXPECT_TRUE(segment.is_expandable);
  ASSERT_EQ(segment.blocks.size(), 6u);
  const std::size_t sizes[] = {512, 1024, 512, 2048, 4096, (1 << 20) - 8192};
  const bool allocated[] = {false, true, false, false, true, false};
  const bool active[] = {false, true, true, false, true, false};
  std::size_t total = 0;
  for (std::size_t block = 0; block < 6; ++block) {
    EXPECT_EQ(segment.blocks[block].size, sizes[block]) << block;
    EXPECT_EQ(segment.blocks[block].allocated, allocated[block]) << block;
    EXPECT_EQ(segment.blocks[block].active, active[block]) << block;
    total += segment.blocks[block].size;
  }
  EXPECT_EQ(total, segment.total_size);
  EXPECT_EQ(segment.allocated_size, 1024u + 4096u);
  EXPECT_EQ(segment.active_size, 1024u + 512u + 4096u);
  EXPECT_EQ(segment.requested_size, 1000u + 1u + 4096u);
}

TEST(ArenaSegmentTest, IsOneGapWhenNothingIsLive) {
  const auto segment = ArenaSegment(0, 0x1000, {0, 4096}, {}, AllocationHistory());
  ASSERT_EQ(segment.blocks.size(), 1u);
  EXPECT_EQ(segment.blocks[0].size, 4096u);
  EXPECT_FALSE(segment.blocks[0].active);
}

TEST(ArenaSegmentTest, ShowsOfSeveralRangesOnlyWhatLiesInItsOwn) {
  const std::vector<LiveBlock> live = {{.offset = 0, .bytes = 512, .requested = 512},
                                       {.offset = 8192, .bytes = 1024, .requested = 1024}};
  const auto segment = ArenaSegment(0, 0x10000, {4096, 8192}, live, AllocationHistory());
  EXPECT_EQ(segment.address, 0x10000u + 4096);
  EXPECT_EQ(segment.total_size, 8192u);
  ASSERT_EQ(segment.blocks.size(), 3u);
  EXPECT_EQ(segment.blocks[0].size, 4096u);
  EXPECT_EQ(segment.blocks[1].size, 1024u);
  EXPECT_TRUE(segment.blocks[1].allocated);
  EXPECT_EQ(segment.blocks[2].size, 3072u);
}

TEST(ArenaSegmentTest, CarriesTheStackOfALiveBlock) {
  AllocationHistory history;
  history.Configure(Recording(RecordContext::STATE));
  history.OnAlloc({.device = 0, .address = At(0x1000 + 512), .bytes = 100, .stream = nullptr}, "");
  const auto segment = ArenaSegment(0, 0x1000, {0, 4096}, {{.offset = 512, .bytes = 512, .requested = 100}}, history);
  ASSERT_EQ(segment.blocks.size(), 3u);
  EXPECT_NE(segment.blocks[1].context_when_allocated, nullptr);
  EXPECT_EQ(segment.blocks[0].context_when_allocated, nullptr);
}

TEST(LoneSegmentTest, IsOneBlockOfItsRoundedSize) {
  const auto segment =
      LoneSegment(1, {.pointer = reinterpret_cast<void*>(0x2000), .requested = 700, .stream = 3}, AllocationHistory());
  EXPECT_EQ(segment.address, 0x2000u);
  EXPECT_EQ(segment.total_size, 1024u);
  ASSERT_EQ(segment.blocks.size(), 1u);
  EXPECT_EQ(segment.blocks[0].requested_size, 700u);
  EXPECT_TRUE(segment.blocks[0].allocated);
}

// A template, so that it compiles where segments have none.
template <typename Segment>
void AppendNumber(const Segment& segment, std::vector<std::int64_t>& numbers) {
  if constexpr (requires { segment.registration_counter; }) numbers.push_back(segment.registration_counter);
}

// NCCL refuses a segment without a number, and ranks that register segments with each other sort by it.
TEST(LoneSegmentTest, HasItsPlaceAmongThoseThatAreRegistered) {
  std::vector<std::int64_t> numbers;
  for (const std::size_t order : {0, 1, 2}) {
    const auto segment = LoneSegment(0, {.pointer = reinterpret_cast<void*>(0x9000 - 512 * order), .requested = 512},
                                     AllocationHistory(), order);
    AppendNumber(segment, numbers);
  }
  if (numbers.empty()) GTEST_SKIP() << "this torch's segments have no numbers";
  EXPECT_GT(numbers[0], 0);
  EXPECT_TRUE(std::is_sorted(numbers.begin(), numbers.end()));
  EXPECT_NE(numbers[0], numbers[1]);
}

TEST(AllocationHistoryTest, KeepsNothingUntilItIsSwitchedOn) {
  AllocationHistory history;
  EXPECT_FALSE(history.active());
  history.Configure({});
  EXPECT_FALSE(history.active());
}

TEST(AllocationHistoryTest, RecordsARequestAndBothHalvesOfItsFree) {
  AllocationHistory history;
  history.Configure(Recording(RecordContext::ALL));
  g_gathered = 0;
  history.OnAlloc({.device = 1, .address = At(512), .bytes = 100, .stream = nullptr}, "note");
  history.OnFree({.device = 1, .address = At(512), .bytes = 100, .stream = nullptr}, "");
  const std::vector<Entry> entries = history.Entries(1);
  ASSERT_EQ(entries.size(), 3u);
  EXPECT_EQ(entries[0].action_, Entry::ALLOC);
  EXPECT_EQ(entries[1].action_, Entry::FREE_REQUESTED);
  EXPECT_EQ(entries[2].action_, Entry::FREE_COMPLETED);
  for (const Entry& entry : entries) {
    EXPECT_EQ(entry.addr_, 512u);
    EXPECT_EQ(entry.size_, 100u);
  }
  EXPECT_EQ(version::UserMetadataOfEntry(entries[0]), kEntriesHaveWords ? "note" : "");
  EXPECT_EQ(NumberOf(entries[0].context_), 1);
  EXPECT_EQ(NumberOf(entries[1].context_), 2);
  EXPECT_EQ(history.BlockContext(At(512)), nullptr) << "the block is gone";
  EXPECT_TRUE(history.Entries(0).empty());
}

std::vector<Entry::Action> ActionsOf(const AllocationHistory& history, c10::DeviceIndex device) {
  std::vector<Entry::Action> actions;
  for (const Entry& entry : history.Entries(device)) actions.push_back(entry.action_);
  return actions;
}

TEST(AllocationHistoryTest, CompletesTheFreeOfABlockThatAnotherStreamUsesWhenItsBytesAreTaken) {
  AllocationHistory history;
  history.Configure(Recording(RecordContext::ALL));
  const AllocationHistory::Subject block{.device = 0, .address = At(4096), .bytes = 1000, .stream = nullptr};
  history.OnAlloc(block, "");
  history.OnForeignUse(block.address);
  history.OnFree(block, "mine");
  EXPECT_EQ(history.Incomplete(0), 1u);
  history.OnAlloc({.device = 0, .address = At(5632), .bytes = 8, .stream = nullptr}, "");    // behind it
  history.OnAlloc({.device = 0, .address = At(3584), .bytes = 512, .stream = nullptr}, "");  // in front of it
  EXPECT_EQ(history.Incomplete(0), 1u);
  history.OnAlloc({.device = 0, .address = At(4608), .bytes = 8, .stream = nullptr}, "");
  EXPECT_EQ(history.Incomplete(0), 0u);
  EXPECT_EQ(ActionsOf(history, 0), (std::vector<Entry::Action>{Entry::ALLOC, Entry::FREE_REQUESTED, Entry::ALLOC,
                                                               Entry::ALLOC, Entry::FREE_COMPLETED, Entry::ALLOC}));
  const Entry completed = history.Entries(0)[4];
  EXPECT_EQ(completed.addr_, 4096u);
  EXPECT_EQ(completed.size_, 1000u);
  EXPECT_EQ(version::UserMetadataOfEntry(completed), kEntriesHaveWords ? "mine" : "");
  EXPECT_NE(completed.context_, nullptr) << "of the free, not of whoever takes the bytes";
  EXPECT_EQ(completed.context_, history.Entries(0)[1].context_);
}

TEST(AllocationHistoryTest, CompletesFreesOfBlocksThatAreNotHeldAnyMore) {
  AllocationHistory history;
  history.Configure(Recording(RecordContext::NEVER));
  for (const std::uintptr_t at : {4096, 8192, 12288}) {
    const AllocationHistory::Subject block{
        .device = static_cast<c10::DeviceIndex>(at == 12288), .address = At(at), .bytes = 512, .stream = nullptr};
    history.OnAlloc(block, "");
    history.OnForeignUse(block.address);
    history.OnFree(block, "");
  }
  history.CompleteUnlessHeld(0, {512, 8192});
  EXPECT_EQ(history.Incomplete(0), 1u);
  EXPECT_EQ(history.Incomplete(1), 1u) << "another device's";
  EXPECT_EQ(history.Entries(0).back().action_, Entry::FREE_COMPLETED);
  EXPECT_EQ(history.Entries(0).back().addr_, 4096u);
  history.Configure({});
  EXPECT_EQ(history.Incomplete(0) + history.Incomplete(1), 0u) << "nobody wants to know any more";
}

TEST(AllocationHistoryTest, ABlockAtTheSameAddressHasNoForeignUsesOfTheLastOne) {
  AllocationHistory history;
  history.Configure(Recording(RecordContext::NEVER));
  const AllocationHistory::Subject block{.device = 0, .address = At(4096), .bytes = 512, .stream = nullptr};
  for (int round = 0; round < 2; ++round) {
    history.OnAlloc(block, "");
    if (round == 0) history.OnForeignUse(block.address);
    history.OnFree(block, "");
  }
  EXPECT_EQ(history.Incomplete(0), 0u);
  EXPECT_EQ(ActionsOf(history, 0),
            (std::vector<Entry::Action>{Entry::ALLOC, Entry::FREE_REQUESTED, Entry::FREE_COMPLETED, Entry::ALLOC,
                                        Entry::FREE_REQUESTED, Entry::FREE_COMPLETED}));
}

TEST(AllocationHistoryTest, ShowsTheAllocationsStackAtAFreeThatHasNone) {
  AllocationHistory history;
  history.Configure(Recording(RecordContext::ALLOC));
  g_gathered = 0;
  history.OnAlloc({.device = 0, .address = At(512), .bytes = 1, .stream = nullptr}, "");
  history.OnFree({.device = 0, .address = At(512), .bytes = 1, .stream = nullptr}, "");
  ASSERT_EQ(history.Entries(0).size(), 3u);
  EXPECT_EQ(NumberOf(history.Entries(0)[1].context_), 1);
  EXPECT_EQ(g_gathered.load(), 1);
}

TEST(AllocationHistoryTest, KeepsWordsOnALiveBlockAsAnEntryOfTheirOwn) {
  AllocationHistory history;
  history.Configure(Recording(RecordContext::NEVER));
  const AllocationHistory::Subject block{.device = 0, .address = At(512), .bytes = 100, .stream = nullptr};
  history.OnAlloc(block, "");
  history.OnAnnotation(Entry::SNAPSHOT, block, "weights");  // in place of ANNOTATE, which older torches lack
  ASSERT_EQ(ActionsOf(history, 0), (std::vector<Entry::Action>{Entry::ALLOC, Entry::SNAPSHOT}));
  const Entry words = history.Entries(0)[1];
  EXPECT_EQ(words.addr_, 512u);
  EXPECT_EQ(words.size_, 100u);
  EXPECT_EQ(version::UserMetadataOfEntry(words), kEntriesHaveWords ? "weights" : "");
}

TEST(AllocationHistoryTest, DropsTheOldestEntriesOfAFullRing) {
  AllocationHistory history;
  history.Configure(Recording(RecordContext::NEVER, 4));
  for (std::uintptr_t block = 1; block <= 10; ++block) {
    history.OnAlloc({.device = 0, .address = At(block * 512), .bytes = 1, .stream = nullptr}, "");
  }
  const std::vector<Entry> entries = history.Entries(0);
  ASSERT_EQ(entries.size(), 4u);
  EXPECT_EQ(entries.front().addr_, 7u * 512);
  EXPECT_EQ(entries.back().addr_, 10u * 512);
}

TEST(AllocationHistoryTest, LeavesSkippedActionsOutAndForgetsOnRequest) {
  AllocationHistory history;
  AllocationHistory::Options options = Recording(RecordContext::NEVER);
  options.skip_actions = {"free_requested", "free_completed"};
  history.Configure(options);
  history.OnAlloc({.device = 0, .address = At(512), .bytes = 1, .stream = nullptr}, "");
  history.OnFree({.device = 0, .address = At(512), .bytes = 1, .stream = nullptr}, "");
  EXPECT_EQ(history.Entries(0).size(), 1u);
  options.clear = true;
  history.Configure(options);
  EXPECT_TRUE(history.Entries(0).empty());
}

TEST(AllocationHistoryTest, TellsTrackersWithoutRecording) {
  AllocationHistory history;
  std::vector<Entry::Action> seen;
  history.AddTracker([&](const Entry& entry) { seen.push_back(entry.action_); });
  EXPECT_TRUE(history.active());
  history.OnSegment(Entry::SEGMENT_ALLOC, {.device = 0, .address = At(1 << 20), .bytes = 1 << 20, .stream = nullptr});
  history.OnAlloc({.device = 0, .address = At(1 << 20), .bytes = 1, .stream = nullptr}, "");
  EXPECT_EQ(seen, (std::vector<Entry::Action>{Entry::SEGMENT_ALLOC, Entry::ALLOC}));
  EXPECT_TRUE(history.Entries(0).empty());
}

TEST(AllocationHistoryTest, ATrackerMayAskForWhatIsRecordedAndMayFail) {
  AllocationHistory history;
  history.Configure(Recording(RecordContext::NEVER));
  std::size_t recorded = 0;
  history.AddTracker([&](const Entry& entry) {
    recorded = history.Entries(entry.device_).size();
    throw std::runtime_error("full");
  });
  int heard = 0;
  history.AddTracker([&](const Entry&) { ++heard; });
  const AllocationHistory::Subject block{.device = 0, .address = At(4096), .bytes = 512, .stream = nullptr};
  EXPECT_THROW(history.OnAlloc(block, ""), std::runtime_error) << "as natively";
  EXPECT_EQ(recorded, 1u);
  EXPECT_EQ(heard, 1);
  history.OnForeignUse(block.address);
  history.OnFree(block, "");
  history.CompleteUnlessHeld(0, {});
  history.OnSegment(Entry::SEGMENT_FREE, block);
  EXPECT_EQ(recorded, 4u);
  EXPECT_EQ(heard, 4) << "nothing else fails on its account";
  EXPECT_EQ(history.Incomplete(0), 0u);
}

TEST(AllocationHistoryTest, SegmentsHaveTheStackOfWhoeverChangesThemWhereAllStacksAreRecorded) {
  const AllocationHistory::Subject segment{.device = 0, .address = At(1 << 20), .bytes = 1 << 20, .stream = nullptr};
  for (const RecordContext when : {RecordContext::ALLOC, RecordContext::ALL}) {
    AllocationHistory history;
    history.Configure(Recording(when));
    history.OnSegment(Entry::SEGMENT_FREE, segment, history.GatherForSegments());
    ASSERT_EQ(history.Entries(0).size(), 1u);
    EXPECT_EQ(history.Entries(0)[0].context_ != nullptr, when == RecordContext::ALL);
  }
}

TEST(MergeTracesTest, SortsByTimeAndKeepsTheOrderOfEachSide) {
  c10::ApproximateClockToUnixTimeConverter clock;
  const auto entry = [](std::size_t address) {
    return version::MakeEntry({Entry::ALLOC, 0, address, 1, nullptr, c10::getApproximateTime(), nullptr, ""});
  };
  std::vector<Entry> ours = {entry(1), entry(2)};
  const auto to_nanoseconds = clock.makeConverter();
  const auto now = static_cast<time_t>(to_nanoseconds(c10::getApproximateTime()) / 1000);
  std::vector<Entry> native = {entry(10), entry(11), entry(12)};
  native[0].time_.t_ = now - 10'000'000;
  native[1].time_.t_ = now + 10'000'000;
  native[2].time_.t_ = now + 10'000'000;
  MergeTraces(std::move(ours), clock, native);
  ASSERT_EQ(native.size(), 5u);
  const std::size_t expected[] = {10, 1, 2, 11, 12};
  for (std::size_t at = 0; at < 5; ++at) EXPECT_EQ(native[at].addr_, expected[at]) << at;
  EXPECT_NEAR(static_cast<double>(native[1].time_.t_), static_cast<double>(now), 5e6) << "microseconds since the epoch";
}

}  // namespace
}  // namespace stalloc
