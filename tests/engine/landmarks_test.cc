#include "allocator/engine/landmarks.h"

#include <gtest/gtest.h>

#include "proto/model/units.h"

namespace stalloc {
namespace {

constexpr std::uint32_t kQ = 1000;     // begins every layer, in granules
constexpr std::int32_t kExperts = 20;  // of a layer
constexpr std::int32_t kOfExpert = 6;  // entries
constexpr std::int32_t kLayer = 2 + kExperts * kOfExpert;

void Add(Script& script, std::uint32_t granules, EntryClass entry_class = EntryClass::kStatic) {
  Entry entry;
  entry.bytes = entry.min_bytes = entry.max_bytes = Bytes{granules} * kBlockAlignment;
  entry.entry_class = entry_class;
  script.entries.push_back(entry);
}

// Q Q, then experts whose entries vary by turns.
Script Layers(int layers, EntryClass of_experts = EntryClass::kDynamic) {
  Script script;
  for (int layer = 0; layer < layers; ++layer) {
    Add(script, kQ);
    Add(script, kQ);
    for (std::int32_t i = 0; i < kExperts * kOfExpert; ++i)
      Add(script, 10, i % 2 == 0 ? of_experts : EntryClass::kStatic);
  }
  return script;
}

Landmarks LandmarksOf(const Script& script) {
  return {script, [&script](std::int32_t position) {
            const Entry& entry = script.entries[static_cast<std::size_t>(position)];
            return entry.entry_class == EntryClass::kDynamic
                       ? 0
                       : static_cast<std::uint32_t>(entry.bytes / kBlockAlignment);
          }};
}

TEST(LandmarksTest, TheNearestOfItsSizeIsFoundFromHalfALayerAway) {
  const Script script = Layers(4);
  const Landmarks landmarks = LandmarksOf(script);
  const std::int32_t end = 4 * kLayer;
  EXPECT_EQ(landmarks.Nearest(kQ, 2 * kLayer, 0, end), 2 * kLayer);
  EXPECT_EQ(landmarks.Nearest(kQ, 2 * kLayer + kLayer / 3, 0, end), 2 * kLayer);
  EXPECT_EQ(landmarks.Nearest(kQ, 2 * kLayer - kLayer / 3, 0, end), 2 * kLayer);
}

TEST(LandmarksTest, InTheMiddleBetweenTwoNothingIsKnown) {
  const Landmarks landmarks = LandmarksOf(Layers(4));
  EXPECT_EQ(landmarks.Nearest(kQ, kLayer + kLayer / 2, 0, 4 * kLayer), Landmarks::kNone);
}

TEST(LandmarksTest, OutsideThePhaseThereIsNone) {
  const Landmarks landmarks = LandmarksOf(Layers(4));
  EXPECT_EQ(landmarks.Nearest(kQ, 2 * kLayer, 2 * kLayer + 1, 3 * kLayer), Landmarks::kNone);
  // Without its neighbours a landmark is known from further away.
  EXPECT_EQ(landmarks.Nearest(kQ, kLayer + kLayer / 2, kLayer, 2 * kLayer), kLayer);
}

TEST(LandmarksTest, OtherSizesAreNone) {
  const Landmarks landmarks = LandmarksOf(Layers(4));
  EXPECT_EQ(landmarks.Nearest(kQ + 1, kLayer, 0, 4 * kLayer), Landmarks::kNone);
  EXPECT_EQ(landmarks.Nearest(10, 5, 0, 4 * kLayer), Landmarks::kNone) << "every expert has it";
}

TEST(LandmarksTest, WhereNothingVariesThereAreNone) {
  const Landmarks landmarks = LandmarksOf(Layers(4, EntryClass::kStatic));
  EXPECT_EQ(landmarks.Nearest(kQ, kLayer, 0, 4 * kLayer), Landmarks::kNone);
  EXPECT_EQ(landmarks.Before(3 * kLayer), Landmarks::kNone);
}

TEST(LandmarksTest, ASizeThatEntriesHaveWhichAreNotAlwaysThereIsNone) {
  Script script = Layers(4);
  Add(script, kQ, EntryClass::kOptional);
  EXPECT_EQ(LandmarksOf(script).Nearest(kQ, kLayer, 0, 4 * kLayer), Landmarks::kNone);
}

TEST(LandmarksTest, TheLastOneBeforeAPosition) {
  const Landmarks landmarks = LandmarksOf(Layers(4));
  EXPECT_EQ(landmarks.Before(0), Landmarks::kNone);
  EXPECT_EQ(landmarks.Before(1), 0);
  EXPECT_EQ(landmarks.Before(2 * kLayer), kLayer);
}

TEST(LandmarksTest, AnEmptyScriptHasNone) {
  EXPECT_EQ(LandmarksOf(Script{}).Nearest(kQ, 0, 0, 0), Landmarks::kNone);
  EXPECT_EQ(Landmarks().Before(7), Landmarks::kNone);
}

}  // namespace
}  // namespace stalloc
