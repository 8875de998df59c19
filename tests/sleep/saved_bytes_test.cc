// Against a model of one entry for each unit of the arena.
#include "allocator/sleep/saved_bytes.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>
#include <vector>

#include "tests/sleep/faulty_copies.h"

namespace stalloc {
namespace {

constexpr Bytes kUnit = kBlockAlignment;

Ranges RandomRanges(std::mt19937_64& random, Offset end) {
  Ranges ranges;
  for (Offset at = random() % 8 * kUnit; at < end;) {
    const Bytes bytes = (1 + random() % 9) * kUnit;
    ranges.push_back({at, bytes});
    at += bytes + random() % 5 * kUnit;
  }
  return ranges;
}

std::set<Offset> UnitsOf(const Ranges& ranges) {
  std::set<Offset> units;
  for (const Arena::Range& range : ranges) {
    for (Offset at = range.offset; at < EndOf(range); at += kUnit) units.insert(at);
  }
  return units;
}

TEST(RangesTest, SetsOfRangesAreSets) {
  std::mt19937_64 random(3);
  for (int round = 0; round < 300; ++round) {
    const Ranges a = RandomRanges(random, 300 * kUnit);
    const Ranges b = RandomRanges(random, 300 * kUnit);
    std::set<Offset> both;
    std::set<Offset> rest;
    const std::set<Offset> of_b = UnitsOf(b);
    for (const Offset unit : UnitsOf(a)) (of_b.contains(unit) ? both : rest).insert(unit);
    EXPECT_EQ(UnitsOf(Common(a, b)), both);
    EXPECT_EQ(UnitsOf(Without(a, b)), rest);
    EXPECT_EQ(UnitsOf(Joined(a)), UnitsOf(a));
    EXPECT_EQ(SumOf(a), UnitsOf(a).size() * kUnit);
    const Ranges joined = Joined(a);
    for (std::size_t i = 1; i < joined.size(); ++i) EXPECT_LT(EndOf(joined[i - 1]), joined[i].offset);
  }
}

TEST(SavedBytesTest, EveryUnitHasItsPlaceUntilItIsDropped) {
  FaultyCopies copies;
  HostPool pool(copies);
  SavedBytes saved;
  std::map<Offset, std::byte*> model;
  std::mt19937_64 random(5);
  const auto check = [&] {
    std::map<Offset, std::byte*> found;
    constexpr Arena::Range kAll{0, ~Bytes{0}};
    for (const SavedBytes::Part& part : saved.In({&kAll, 1})) {
      for (Bytes at = 0; at < part.range.bytes; at += kUnit) found[part.range.offset + at] = part.at + at;
    }
    EXPECT_EQ(found, model);
    EXPECT_EQ(saved.bytes(), model.size() * kUnit);
    EXPECT_EQ(pool.free_bytes() + saved.bytes(), pool.bytes());
  };
  for (int round = 0; round < 200; ++round) {
    Ranges fresh;
    for (const Arena::Range& range : RandomRanges(random, 400 * kUnit)) {
      const Ranges known = Without({&range, 1}, [&] {
        Ranges here;
        for (const auto& [offset, at] : model) here.push_back({offset, kUnit});
        return here;
      }());
      fresh.insert(fresh.end(), known.begin(), known.end());
    }
    const auto pieces = pool.Take(SumOf(fresh));
    ASSERT_TRUE(pieces.ok());
    std::vector<std::byte*> places;
    for (const auto& piece : pieces.value()) {
      for (Bytes at = 0; at < piece.bytes; at += kUnit) places.push_back(piece.at + at);
    }
    auto place = places.begin();
    for (const Offset unit : UnitsOf(fresh)) model[unit] = *place++;
    saved.Add(fresh, pieces.value());
    check();
    const Ranges some = RandomRanges(random, 400 * kUnit);
    const std::set<Offset> units = UnitsOf(some);
    const bool keeps = random() % 2 == 0;
    std::erase_if(model, [&](const auto& entry) { return units.contains(entry.first) != keeps; });
    keeps ? saved.KeepOnly(some, pool) : saved.Drop(some, pool);
    check();
  }
}

}  // namespace
}  // namespace stalloc
