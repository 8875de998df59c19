#include "allocator/base/ordinal_table.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <thread>
#include <vector>

namespace stalloc {
namespace {

constexpr std::size_t kElements = 8;
using Table = OrdinalTable<int, kElements>;

bool Has(const Table& table, const int* element) {
  return std::find(table.All().begin(), table.All().end(), element) != table.All().end();
}

TEST(OrdinalTableTest, ElementsAreFoundByOrdinalAndInTheirOrder) {
  std::array<int, 2> elements{};
  Table table;
  EXPECT_EQ(table.Find(5), nullptr);
  EXPECT_EQ(table.Only(), nullptr);
  table.Add(5, &elements[0]);
  EXPECT_EQ(table.Find(5), &elements[0]);
  EXPECT_EQ(table.Only(), &elements[0]);
  table.Add(2, &elements[1]);
  EXPECT_EQ(table.Only(), nullptr);
  ASSERT_EQ(table.All().size(), 2u);
  EXPECT_EQ(table.All()[0], &elements[0]);
  EXPECT_EQ(table.All()[1], &elements[1]);
  for (const std::ptrdiff_t none : {-1, 3, 8, 128}) EXPECT_EQ(table.Find(none), nullptr) << none;
}

// A thread that has something of an element asks whose it is, while further ones come.
TEST(OrdinalTableTest, WhoHasFoundAnElementIsFoundByItWhileOthersCome) {
  constexpr int kRounds = 20'000;
  std::array<int, kElements> elements{};
  std::vector<Table> tables(kRounds);
  std::atomic<int> wrong{0};
  std::atomic<int> looks_at{-1};
  std::thread looker([&] {
    for (int round = 0; round < kRounds; ++round) {
      const Table& table = tables[static_cast<std::size_t>(round)];
      looks_at = round;
      for (std::size_t ordinal = 0; ordinal < kElements; ++ordinal) {
        for (int tries = 0; table.Find(static_cast<std::ptrdiff_t>(ordinal)) == nullptr; ++tries) {
          if (tries > 2000) std::this_thread::yield();
        }
        const int* const element = &elements[ordinal];
        const int* const only = table.Only();
        if ((only != nullptr && only != element) || !Has(table, element)) ++wrong;
      }
    }
  });
  for (int round = 0; round < kRounds; ++round) {
    while (looks_at < round) std::this_thread::yield();
    for (std::size_t i = 0; i < kElements; ++i) tables[static_cast<std::size_t>(round)].Add(i, &elements[i]);
  }
  looker.join();
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace stalloc
