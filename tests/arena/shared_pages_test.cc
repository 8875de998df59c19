#include "allocator/arena/shared_pages.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace stalloc {
namespace {

constexpr Bytes kPage = 64 * 512;
constexpr StreamHandle kA = 1;
constexpr StreamHandle kB = 2;

TEST(SharedPagesTest, AnEmptyPageServesATailAHeadAndSmallBlocksBetweenThem) {
  SharedPages pages(kPage);
  pages.Add(7);
  const auto tail = pages.TakeAtEdge(10 * 512, kA);
  ASSERT_TRUE(tail);
  EXPECT_EQ(tail.offset, 0u);
  const auto head = pages.TakeAtEdge(20 * 512, kA);
  ASSERT_TRUE(head);
  EXPECT_EQ(head.offset, kPage - 20 * 512);
  const auto small = pages.TakeAnywhere(34 * 512, kA);
  ASSERT_TRUE(small);
  EXPECT_EQ(small.offset, 10u * 512);
  EXPECT_EQ(pages.free_bytes(), 0u);
  EXPECT_FALSE(pages.TakeAnywhere(512, kA));
  EXPECT_EQ(pages.CheckInvariants(), "");
}

TEST(SharedPagesTest, SmallBlocksLeaveRoomForTailsInOnePageAndForHeadsInTheNext) {
  SharedPages pages(kPage);
  pages.Add(1);
  EXPECT_EQ(pages.TakeAnywhere(40 * 512, kA).offset, 24u * 512);
  pages.Add(2);
  EXPECT_EQ(pages.TakeAnywhere(40 * 512, kA).offset, 0u);
  SharedPages::Piece head;
  SharedPages::Piece tail;
  ASSERT_TRUE(pages.TakeSplit(48 * 512, kA, &head, &tail));
  EXPECT_EQ(head.offset + head.bytes, kPage);
  EXPECT_EQ(tail.offset, 0u);
  EXPECT_EQ(head.bytes + tail.bytes, 48u * 512);
  EXPECT_EQ(pages.free_bytes(), 0u);
}

TEST(SharedPagesTest, ASplitThatDoesNotFitChangesNothing) {
  SharedPages pages(kPage);
  pages.Add(1);
  (void)pages.TakeAnywhere(40 * 512, kA);
  pages.Add(2);
  (void)pages.TakeAnywhere(40 * 512, kA);
  const Bytes before = pages.free_bytes();
  SharedPages::Piece head;
  SharedPages::Piece tail;
  EXPECT_FALSE(pages.TakeSplit(49 * 512, kA, &head, &tail));
  EXPECT_FALSE(head);
  EXPECT_EQ(pages.free_bytes(), before);
  EXPECT_EQ(pages.CheckInvariants(), "");
}

TEST(SharedPagesTest, TheSmallestGapThatFitsIsUsed) {
  SharedPages pages(kPage);
  pages.Add(1);
  pages.Add(2);
  const auto wide = pages.TakeAnywhere(20 * 512, kA);   // page 0: a gap of 44 units stays
  const auto other = pages.TakeAnywhere(50 * 512, kA);  // page 1: a gap of 14 units stays
  ASSERT_NE(wide.page, other.page);
  EXPECT_EQ(pages.TakeAnywhere(14 * 512, kA).page, other.page);
  EXPECT_EQ(pages.TakeAnywhere(14 * 512, kA).page, wide.page);
}

TEST(SharedPagesTest, BytesOfOneStreamAreNotAnothersBeforeASynchronisation) {
  SharedPages pages(kPage);
  pages.Add(1);
  const auto all = pages.TakeAnywhere(kPage - 512, kA);
  const auto rest = pages.TakeAnywhere(512, kA);
  ASSERT_TRUE(rest);
  pages.GiveBack(all, kA);
  EXPECT_FALSE(pages.TakeAnywhere(512, kB));
  ASSERT_TRUE(pages.TakeAnywhere(512, kA));
  pages.AllClean();
  EXPECT_TRUE(pages.TakeAnywhere(512, kB));
  EXPECT_EQ(pages.CheckInvariants(), "");
}

TEST(SharedPagesTest, BytesInQuarantineAreNobodysBeforeASynchronisation) {
  SharedPages pages(kPage);
  pages.Add(1);
  const auto all = pages.TakeAnywhere(kPage - 512, kA);
  pages.GiveBack(all, kQuarantine);
  EXPECT_FALSE(pages.TakeAnywhere(1024, kA));
  EXPECT_TRUE(pages.TakeAnywhere(512, kA)) << "the 512 bytes that were never used";
  pages.AllClean();
  EXPECT_TRUE(pages.TakeAnywhere(kPage - 512, kB));
}

TEST(SharedPagesTest, OnlyAWholeCleanPageCountsAsEmpty) {
  SharedPages pages(kPage);
  SharedPages::Page* const page = pages.Add(9);
  EXPECT_EQ(pages.FindEmpty(), page);
  const auto piece = pages.TakeAtEdge(512, kA);
  EXPECT_EQ(pages.FindEmpty(), nullptr);
  pages.GiveBack(piece, kA);
  EXPECT_EQ(pages.FindEmpty(), nullptr) << "stream A may still be at work there";
  pages.AllClean();
  ASSERT_EQ(pages.FindEmpty(), page);
  pages.Remove(page);
  EXPECT_EQ(pages.free_bytes(), 0u);
  EXPECT_TRUE(pages.pages().empty());
  EXPECT_EQ(pages.CheckInvariants(), "");
}

// Against a naive model: one tag per 512 B unit of each page.
TEST(SharedPagesTest, RandomUseAgreesWithABitmapOfUnits) {
  const std::uint64_t seed = 77001;
  RecordProperty("seed", std::to_string(seed));
  std::mt19937_64 random(seed);
  constexpr UseTag kUsed = 12345;
  SharedPages pages(kPage);
  std::map<SharedPages::Page*, std::vector<UseTag>> model;
  for (int i = 0; i < 4; ++i) {
    model[pages.Add(static_cast<PhysicalHandle>(i))].assign(64, kClean);
  }
  std::vector<SharedPages::Piece> live;
  const auto claim = [&](const SharedPages::Piece& piece, StreamHandle stream) {
    for (Offset unit = piece.offset / 512; unit < (piece.offset + piece.bytes) / 512; ++unit) {
      UseTag& tag = model.at(piece.page)[unit];
      ASSERT_NE(tag, kUsed) << "given out twice, seed " << seed;
      // Clean bytes that touched a stream's gap count as that stream's; the other way round would be the error.
      ASSERT_TRUE(tag == kClean || tag == stream) << "another stream's bytes, seed " << seed;
      tag = kUsed;
    }
    live.push_back(piece);
  };
  for (int step = 0; step < 30000; ++step) {
    const StreamHandle stream = 1 + random() % 2;
    const Bytes bytes = (1 + random() % (random() % 4 == 0 ? 63 : 8)) * 512;
    switch (random() % 8) {
      case 0:
      case 1:
        if (const auto piece = pages.TakeAnywhere(bytes, stream)) {
          claim(piece, stream);
        }
        break;
      case 2:
        if (const auto piece = pages.TakeAtEdge(bytes, stream)) {
          ASSERT_TRUE(piece.offset == 0 || piece.offset + piece.bytes == kPage);
          claim(piece, stream);
        }
        break;
      case 3: {
        SharedPages::Piece head;
        SharedPages::Piece tail;
        if (pages.TakeSplit(bytes, stream, &head, &tail)) {
          ASSERT_EQ(head.bytes + tail.bytes, bytes);
          ASSERT_EQ(head.offset + head.bytes, kPage);
          ASSERT_EQ(tail.offset, 0u);
          claim(head, stream);
          claim(tail, stream);
        }
        break;
      }
      case 4:
        if (random() % 50 == 0) {
          pages.AllClean();
          for (auto& [page, units] : model) {
            std::replace_if(
                units.begin(), units.end(), [](UseTag tag) { return tag != kUsed; }, kClean);
          }
        }
        break;
      default:
        if (!live.empty()) {
          std::swap(live[random() % live.size()], live.back());
          const UseTag tag = random() % 5 == 0 ? kQuarantine : UseTag{stream};
          const auto piece = live.back();
          live.pop_back();
          pages.GiveBack(piece, tag);
          std::fill_n(model.at(piece.page).begin() + static_cast<std::ptrdiff_t>(piece.offset / 512), piece.bytes / 512,
                      tag);
        }
    }
    ASSERT_EQ(pages.CheckInvariants(), "") << "seed " << seed << " step " << step;
  }
}

}  // namespace
}  // namespace stalloc
