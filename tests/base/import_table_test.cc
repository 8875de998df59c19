// Libraries are loaded apart from each other (RTLD_LOCAL), as CUDA's may be.
#include "allocator/base/import_table.h"

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <string>
#include <thread>
#include <vector>

namespace stalloc {
namespace {

using ::testing::HasSubstr;

using AskFunction = int (*)(int);

int Mine(int question) { return question + 1000; }
void* const kMine = reinterpret_cast<void*>(&Mine);

// With the path of a library that asks.
class ImportTableTest : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    library_ = dlopen((std::string(STALLOC_TEST_IMPORTS) + "/" + GetParam()).c_str(), RTLD_LAZY | RTLD_LOCAL);
    ASSERT_NE(library_, nullptr) << dlerror();
  }
  void TearDown() override { dlclose(library_); }

  [[nodiscard]] int Ask(const char* how, int question) const {
    return reinterpret_cast<AskFunction>(dlsym(library_, how))(question);
  }
  static ImportTable Table() { return ImportTable::Of(GetParam()).value(); }

  void* library_ = nullptr;
};

// Whether a page is writable, as the kernel says.
bool IsWritable(const void* address) {
  std::FILE* const maps = std::fopen("/proc/self/maps", "r");
  unsigned long begin = 0;
  unsigned long end = 0;
  char protection[8] = "";
  bool writable = false;
  const auto at = reinterpret_cast<unsigned long>(address);
  while (std::fscanf(maps, "%lx-%lx %7s%*[^\n]", &begin, &end, protection) == 3) {
    if (at >= begin && at < end) writable = protection[1] == 'w';
  }
  std::fclose(maps);
  return writable;
}

TEST_P(ImportTableTest, CallsOfTheLibraryReachWhatReplacesTheFunction) {
  ImportTable table = Table();
  const Result<void*> former = table.Replace("stalloc_test_answer", kMine);
  ASSERT_TRUE(former.ok()) << former.error();
  EXPECT_EQ(Ask("stalloc_test_ask", 1), 1001);
  EXPECT_EQ(Ask("stalloc_test_ask_by_address", 1), 1001);
  EXPECT_EQ(Ask("stalloc_test_ask_other", 1), 101) << "another function is as it was";
  EXPECT_EQ(reinterpret_cast<AskFunction>(former.value())(1), 2) << "bound or not, it is the real one";

  const Result<void*> mine = table.Replace("stalloc_test_answer", former.value());
  ASSERT_TRUE(mine.ok()) << mine.error();
  EXPECT_EQ(mine.value(), kMine);
  EXPECT_EQ(Ask("stalloc_test_ask", 1), 2);
}

TEST_P(ImportTableTest, AFunctionThatWasCalledBeforeIsReplacedToo) {
  EXPECT_EQ(Ask("stalloc_test_ask", 1), 2);
  ImportTable table = Table();
  const Result<void*> former = table.Replace("stalloc_test_answer", kMine);
  ASSERT_TRUE(former.ok()) << former.error();
  EXPECT_EQ(Ask("stalloc_test_ask", 1), 1001);
  ASSERT_TRUE(table.Replace("stalloc_test_answer", former.value()).ok());
}

TEST_P(ImportTableTest, PagesAreAsWritableAsTheyWere) {
  ImportTable table = Table();
  std::vector<bool> before;
  for (void** const slot : table.Find("stalloc_test_answer")) before.push_back(IsWritable(slot));
  const Result<void*> former = table.Replace("stalloc_test_answer", kMine);
  ASSERT_TRUE(former.ok()) << former.error();
  std::vector<bool> after;
  for (void** const slot : table.Find("stalloc_test_answer")) after.push_back(IsWritable(slot));
  EXPECT_EQ(after, before);
  ASSERT_FALSE(before.empty());
  if (std::string(GetParam()).find("lazy") == std::string::npos) {
    EXPECT_FALSE(before.front());
  }
  ASSERT_TRUE(table.Replace("stalloc_test_answer", former.value()).ok());
}

TEST_P(ImportTableTest, WhatIsNotImportedIsNotFound) {
  ImportTable table = Table();
  EXPECT_TRUE(table.Find("stalloc_test_ask").empty()) << "it is defined there";
  const Result<void*> replaced = table.Replace("stalloc_test_no_answer", kMine);
  ASSERT_FALSE(replaced.ok());
  EXPECT_THAT(replaced.error(), HasSubstr("does not import stalloc_test_no_answer"));
  EXPECT_THAT(replaced.error(), HasSubstr(GetParam()));
}

TEST_P(ImportTableTest, OtherThreadsCallMeanwhile) {
  ImportTable table = Table();
  EXPECT_EQ(Ask("stalloc_test_ask", 1), 2);  // bound
  std::thread caller([&] {
    for (int i = 0; i < 20000; ++i) {
      const int answer = Ask("stalloc_test_ask", 1);
      EXPECT_TRUE(answer == 2 || answer == 1001) << answer;
    }
  });
  for (int i = 0; i < 200; ++i) {
    const Result<void*> former = table.Replace("stalloc_test_answer", kMine);
    ASSERT_TRUE(former.ok()) << former.error();
    ASSERT_TRUE(table.Replace("stalloc_test_answer", former.value()).ok());
  }
  caller.join();
}

INSTANTIATE_TEST_SUITE_P(Bindings, ImportTableTest,
                         ::testing::Values("libstalloc_test_asks_lazy.so", "libstalloc_test_asks_now.so",
                                           "libstalloc_test_asks_no_plt.so"),
                         [](const auto& each) {
                           const std::string name = each.param;
                           return name.substr(21, name.size() - 24);
                         });

TEST(ImportTableOfTest, NoLibraryOfThatNameIsLoaded) {
  const Result<ImportTable> table = ImportTable::Of("libstalloc_test_nowhere.so");
  ASSERT_FALSE(table.ok());
  EXPECT_THAT(table.error(), HasSubstr("libstalloc_test_nowhere.so"));
  EXPECT_FALSE(ImportTable::Of("stalloc_test_asks_lazy.so").ok()) << "a part of a name is none";
}

// Versioned imports of the C library.
TEST(ImportTableOfTest, FunctionsOfAVersionAreFound) {
  const Result<ImportTable> table = ImportTable::Of("libstdc++.so.6");
  if (!table.ok()) GTEST_SKIP() << "no shared libstdc++ here: " << table.error();
  const Result<void*> function = table.value().Function("malloc");
  ASSERT_TRUE(function.ok()) << function.error();
  EXPECT_NE(function.value(), nullptr);
}

}  // namespace
}  // namespace stalloc
