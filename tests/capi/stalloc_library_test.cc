// libstalloc.so loaded as a program does: errors, the environment, exceptions across the boundary. No GPU is needed;
// each case runs in a process of its own, since a process opens one session.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <thread>

#include "tests/base/test_files.h"
#include "tests/capi/in_child.h"

extern "C" int stalloc_header_works_in_c(void);

namespace stalloc {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(StallocLibraryTest, TheHeaderIsC) { EXPECT_EQ(stalloc_header_works_in_c(), STALLOC_ABI_VERSION); }

TEST(StallocLibraryTest, VersionsAreThereBeforeAnythingIsOpened) {
  const std::string result = InChild({}, [](const StallocLibrary& library) -> std::string {
    char json[8] = "";
    if (STALLOC_FIND(library, stalloc_abi_version)() != STALLOC_ABI_VERSION) return "abi";
    if (STALLOC_FIND(library, stalloc_stats_json)(json, sizeof(json)) != 2) return "stats";
    if (STALLOC_FIND(library, stalloc_flush)() != 0) return "flush";
    if (STALLOC_FIND(library, stalloc_stop_trace)() != 0) return "stop";
    if (*STALLOC_FIND(library, stalloc_last_error)() != '\0') return "error";
    STALLOC_FIND(library, stalloc_mark)(2, 1, 0, 0, 0, nullptr, 0);
    return std::string(STALLOC_FIND(library, stalloc_version)()) + json;
  });
  EXPECT_THAT(result, ::testing::MatchesRegex("[0-9]+\\.[0-9]+\\.[0-9]+\\{\\}"));
}

TEST(StallocLibraryTest, ABadModeIsAnErrorEachTimeAndOfThisThreadOnly) {
  const std::string result = InChild({{"STALLOC_MODE", "Alloca"}}, [](const StallocLibrary& library) -> std::string {
    const auto init = STALLOC_FIND(library, stalloc_init);
    const auto last_error = STALLOC_FIND(library, stalloc_last_error);
    if (init() != 1 || init() != 1) return "no error";
    std::string elsewhere = "not run";
    std::thread([&] { elsewhere = last_error(); }).join();
    if (!elsewhere.empty()) return "another thread sees: " + elsewhere;
    return last_error();
  });
  EXPECT_THAT(result, HasSubstr("STALLOC_MODE must be Torch, Trace, Alloc or Auto; found \"Alloca\""));
}

std::string StatsOf(const StallocLibrary& library) {
  std::string text(STALLOC_FIND(library, stalloc_stats_json)(nullptr, 0), '#');
  (void)STALLOC_FIND(library, stalloc_stats_json)(text.data(), text.size() + 1);
  return text;
}

TEST(StallocLibraryTest, StrictRefusesWhatIsOtherwiseAWarning) {
  const TemporaryDirectory directory;
  const auto open = [](const StallocLibrary& library) -> std::string {
    if (STALLOC_FIND(library, stalloc_init)() != 0) return STALLOC_FIND(library, stalloc_last_error)();
    return "opened " + StatsOf(library);
  };
  EXPECT_THAT(
      InChild({{"STALLOC_MODE", "Alloc"}, {"STALLOC_MODEL_INFO_PATH", directory.path()}, {"STALLOC_STRICT", "1"}},
              open),
      HasSubstr("no usable plan"));
  EXPECT_THAT(InChild({{"STALLOC_MODE", "Alloc"}, {"STALLOC_MODEL_INFO_PATH", directory.path()}}, open),
              AllOf(StartsWith("opened "), HasSubstr("no usable plan")));
}

TEST(StallocLibraryTest, AnImpossibleMarkIsAnErrorAndIsNotRecorded) {
  const TemporaryDirectory directory;
  const std::string result = InChild({{"STALLOC_MODE", "Trace"}, {"STALLOC_MODEL_INFO_PATH", directory.path()}},
                                     [](const StallocLibrary& library) -> std::string {
                                       if (STALLOC_FIND(library, stalloc_init)() != 0)
                                         return STALLOC_FIND(library, stalloc_last_error)();
                                       STALLOC_FIND(library, stalloc_mark)(9, 1, 0, 0, 0, "x", 0);
                                       return STALLOC_FIND(library, stalloc_last_error)() + StatsOf(library);
                                     });
  EXPECT_THAT(result, AllOf(StartsWith("stalloc_mark: kind must be from 1 to 6; found 9"), HasSubstr("\"events\": 0")));
}

TEST(StallocLibraryTest, StatsAreCutByNobody) {
  const TemporaryDirectory directory;
  const std::string result = InChild({{"STALLOC_MODE", "Trace"}, {"STALLOC_MODEL_INFO_PATH", directory.path()}},
                                     [](const StallocLibrary& library) -> std::string {
                                       (void)STALLOC_FIND(library, stalloc_init)();
                                       const auto stats = STALLOC_FIND(library, stalloc_stats_json);
                                       const std::size_t needed = stats(nullptr, 0);
                                       std::string text(needed + 1, '#');
                                       if (stats(text.data(), needed) != needed || text.front() != '#')
                                         return "written into a small buffer";
                                       if (stats(text.data(), needed + 1) != needed || text.back() != '\0')
                                         return "not terminated";
                                       text.pop_back();
                                       return text;
                                     });
  EXPECT_THAT(result, AllOf(StartsWith("{\"mode\": \"Trace\""), ::testing::EndsWith("}")));
}

// As torch::cuda::CUDAPluggableAllocator holds it: a std::function over the address, in another library than this one.
TEST(StallocLibraryTest, MallocThrowsABadAllocThatItsCallerCanCatch) {
  const std::string result = InChild({}, [](const StallocLibrary& library) -> std::string {
    const std::function<void*(size_t, int, void*)> malloc_function = STALLOC_FIND(library, stalloc_malloc);
    try {
      (void)malloc_function(std::size_t{1} << 50, 0, nullptr);
      return "nothing thrown";
    } catch (const std::bad_alloc& error) {
      return error.what();
    }
  });
  EXPECT_THAT(result, ::testing::StartsWith("stalloc: "));
  EXPECT_THAT(result, ::testing::AnyOf(HasSubstr("CUDA device 0 cannot be used"), HasSubstr("CUDA out of memory")));
}

TEST(StallocLibraryTest, TryMallocReturnsNullWithTheReason) {
  const std::string result = InChild({}, [](const StallocLibrary& library) -> std::string {
    const auto try_malloc = STALLOC_FIND(library, stalloc_try_malloc);
    if (try_malloc(0, 0, nullptr) != nullptr) return "zero bytes";
    if (try_malloc(-5, 0, nullptr) != nullptr) return "negative bytes";
    if (std::string(STALLOC_FIND(library, stalloc_last_error)()) != "stalloc: negative size: -5") return "reason";
    if (try_malloc(512, 4000, nullptr) != nullptr) return "device 4000";
    STALLOC_FIND(library, stalloc_free)(nullptr, 0, 0, nullptr);
    STALLOC_FIND(library, stalloc_record_stream)(nullptr, nullptr);
    return STALLOC_FIND(library, stalloc_last_error)();
  });
  EXPECT_THAT(result, HasSubstr("no such CUDA device: 4000"));
}

}  // namespace
}  // namespace stalloc
