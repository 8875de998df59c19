#include "planner/whatif/offload_trips.h"

#include <gtest/gtest.h>

#include <string>

namespace stalloc::planner {
namespace {

// "M" with its container "M.layers" of so many layers, each with a part "mlp": forward 10 events each, backward 20.
class Model {
 public:
  explicit Model(std::uint64_t layers, const std::string& holder = "M") {
    const std::uint64_t turn = 10 * layers + 10;
    const std::uint64_t end = turn + 20 * layers + 10;
    Add(holder, 0, turn, turn + 1, end);
    for (std::uint64_t i = 0; i < layers; ++i) {
      const std::string name = "M.layers." + std::to_string(i);
      const std::uint64_t back = turn + 2 + 20 * (layers - 1 - i);
      Add(name, 10 * i + 1, 10 * i + 10, back, back + 20);
      Add(name + ".mlp", 10 * i + 2, 10 * i + 9, back + 1, back + 10);
    }
  }
  [[nodiscard]] OffloadPlace Of(const std::string& name) const {
    const std::vector<OffloadPlace> places = FindOffloadPlaces(names_, visits_);
    for (std::size_t i = 0; i < visits_.size(); ++i) {
      if (names_[visits_[i].name] == name) return places[i];
    }
    return {};
  }

 private:
  void Add(const std::string& name, std::uint64_t begin, std::uint64_t end, std::uint64_t back, std::uint64_t last) {
    LayerVisit visit;
    visit.name = static_cast<std::uint32_t>(names_.size());
    visit.forward_begin = begin;
    visit.forward_end = end;
    visit.backward_begin = back;
    visit.backward_end = last;
    names_.push_back(name);
    visits_.push_back(visit);
  }
  std::vector<std::string> names_;
  std::vector<LayerVisit> visits_;
};

TEST(OffloadPlaces, ALayerGoesThreeStationsOnAndComesBackTwoAhead) {
  const Model model(8);
  EXPECT_EQ(model.Of("M.layers.1").gone, 50u) << "the end of layer 4";
  EXPECT_EQ(model.Of("M.layers.1").back, 92u + 20 * (7 - 3)) << "the beginning of layer 3";
  EXPECT_EQ(model.Of("M.layers.1.mlp").gone, 50u) << "with its layer";
  EXPECT_TRUE(model.Of("M.layers.1").leaves());
}

TEST(OffloadPlaces, AtTheEndThePassIsAStation) {
  const Model model(8);
  EXPECT_EQ(model.Of("M.layers.7").gone, 90u);
  EXPECT_EQ(model.Of("M.layers.7").back, 91u);
  EXPECT_EQ(model.Of("M.layers.6").back, 91u);
  EXPECT_EQ(model.Of("M.layers.5").back, 92u);
}

TEST(OffloadPlaces, WithoutAPassAroundItALayerGoesAtItsEnd) {
  const Model model(8, "Other");
  EXPECT_EQ(model.Of("M.layers.1").gone, 20u);
  EXPECT_EQ(model.Of("M.layers.1").back, 92u + 20 * 6);
  EXPECT_EQ(model.Of("Other").gone, 90u);
}

constexpr double kBus = 1;  // bytes in a nanosecond

TEST(Stall, CopiesThatFitIntoTheirTimeCostNothing) {
  EXPECT_EQ(StallOf({}, kBus), 0);
  EXPECT_EQ(StallOf({{0, 100, 500, 600, 100}}, kBus), 0);
}

TEST(Stall, WhatDoesNotFitIsWaitedForInBothDirections) {
  EXPECT_EQ(StallOf({{0, 100, 500, 570, 120}}, kBus), 20 + 50);
  EXPECT_EQ(StallOf({{0, 100, 500, 570, 120}}, 2 * kBus), 0);
}

TEST(Stall, OneCopyWaitsForTheOther) {
  // Both are saved within 100 and must have gone by 250: 300 bytes are 50 too many; coming back they have time.
  const std::vector<OffloadTrip> both{{0, 250, 800, 1000, 150}, {100, 250, 500, 700, 150}};
  EXPECT_EQ(StallOf(both, kBus), 50);
  EXPECT_EQ(StallOf({both[0]}, kBus) + StallOf({both[1]}, kBus), 0) << "each alone fits";
}

TEST(Stall, AStepThatWaitsGivesTheNextCopyAsMuchLonger) {
  const std::vector<OffloadTrip> trips{{0, 100, 10000, 20000, 200}, {100, 200, 10000, 20000, 100}};
  EXPECT_EQ(StallOf(trips, kBus), 100) << "the second has its 100 when the first is waited for";
}

}  // namespace
}  // namespace stalloc::planner
