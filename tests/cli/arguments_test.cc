#include "planner/cli/arguments.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/flags/flag.h"
#include "absl/flags/reflection.h"

ABSL_FLAG(bool, test_switch, false, "A switch.");
ABSL_FLAG(int, test_number, 7, "A number `X`, not a `Y`.");
ABSL_FLAG(std::string, test_foreign, "", "Of another command.");

namespace stalloc::planner {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

const CommandSyntax kSyntax{
    "test", "FILE", "Tests.", "", {"test_switch", "test_number"}, "test a\ntest b --test-switch\n"};

TEST(ArgumentsTest, TakesFlagsAnywhereInBothSpellings) {
  const absl::FlagSaver saver;
  const auto positional = ParseArguments(kSyntax, {"--test-switch", "a", "--test_number", "-3", "b", "--", "--c"});
  EXPECT_THAT(positional.value(), ElementsAre("a", "b", "--c"));
  EXPECT_TRUE(absl::GetFlag(FLAGS_test_switch));
  EXPECT_EQ(absl::GetFlag(FLAGS_test_number), -3);
}

TEST(ArgumentsTest, SwitchesCanBeTurnedOff) {
  const absl::FlagSaver saver;
  ASSERT_TRUE(ParseArguments(kSyntax, {"--test-switch=true", "--notest-switch"}).ok());
  EXPECT_FALSE(absl::GetFlag(FLAGS_test_switch));
}

TEST(ArgumentsTest, RefusesWhatTheCommandDoesNotTake) {
  const absl::FlagSaver saver;
  for (const std::vector<std::string>& arguments : {std::vector<std::string>{"--nonsense"},
                                                    {"--test-foreign=x"},
                                                    {"--test-number=many"},
                                                    {"--test-number"},
                                                    {"--notest-number"},
                                                    {"--test-switch=perhaps"},
                                                    {"-x"}}) {
    const auto positional = ParseArguments(kSyntax, arguments);
    ASSERT_FALSE(positional.ok()) << arguments[0];
    EXPECT_THAT(std::string(positional.status().message()), HasSubstr(arguments[0].substr(0, arguments[0].find('='))));
  }
}

TEST(ArgumentsTest, HelpListsTheFlagsOfTheCommandWithTheirValuesAndDefaults) {
  const std::string help = HelpText(kSyntax, "stalloc");
  EXPECT_THAT(help, HasSubstr("usage: stalloc test FILE"));
  EXPECT_THAT(help, HasSubstr("  --test-switch  A switch.\n"));
  EXPECT_THAT(help, HasSubstr("--test-number=X  A number X, not a Y. [7]"));
  EXPECT_THAT(help, testing::Not(HasSubstr("foreign")));
}

TEST(ArgumentsTest, HelpEndsWithExamples) {
  EXPECT_THAT(HelpText(kSyntax, "stalloc"),
              testing::EndsWith("\nexamples:\n  stalloc test a\n  stalloc test b --test-switch\n"));
}

TEST(ArgumentsTest, HelpBehindTheEndOfFlagsIsAName) {
  EXPECT_TRUE(AsksForHelp({"a", "--help"}));
  EXPECT_TRUE(AsksForHelp({"-h"}));
  EXPECT_FALSE(AsksForHelp({"--", "--help"}));
}

}  // namespace
}  // namespace stalloc::planner
