// ReadConfig: every variable, its limits, and what an error says.
#include "allocator/runtime/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <utility>

namespace stalloc {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::map<std::string, std::string>* g_environment = nullptr;

const char* Lookup(const char* name) {
  const auto found = g_environment->find(name);
  return found == g_environment->end() ? nullptr : found->second.c_str();
}

Result<Config> Read(std::map<std::string, std::string> environment) {
  g_environment = &environment;
  return ReadConfig(&Lookup);
}

std::string ErrorOf(std::map<std::string, std::string> environment) {
  const Result<Config> config = Read(std::move(environment));
  return config.ok() ? "(no error)" : config.error();
}

TEST(ConfigTest, NothingSetIsTorchMode) {
  const Result<Config> config = Read({});
  ASSERT_TRUE(config.ok());
  EXPECT_EQ(config.value().mode, Mode::kTorch);
  EXPECT_EQ(config.value().log_level, LogSeverity::kInfo);
  EXPECT_EQ(config.value().world_size, 1u);
  EXPECT_FALSE(config.value().strict);
}

TEST(ConfigTest, ModeIsReadInAnyCase) {
  for (const char* spelling : {"Alloc", "alloc", "ALLOC"}) {
    const Result<Config> config = Read({{"STALLOC_MODE", spelling}, {"STALLOC_MODEL_INFO_PATH", "d"}});
    ASSERT_TRUE(config.ok()) << config.error();
    EXPECT_EQ(config.value().mode, Mode::kAlloc);
  }
}

TEST(ConfigTest, UnknownModeNamesWhatIsAllowedAndWhatWasFound) {
  EXPECT_THAT(ErrorOf({{"STALLOC_MODE", "Aloc"}}),
              AllOf(HasSubstr("STALLOC_MODE"), HasSubstr("Torch, Trace, Alloc or Auto"), HasSubstr("\"Aloc\"")));
}

TEST(ConfigTest, AutoTracesAtFullSpeedFromTheBeginning) {
  const Result<Config> config =
      Read({{"STALLOC_MODE", "auto"}, {"STALLOC_MODEL_INFO_PATH", "/run"}, {"STALLOC_TRACE_STEPS", "2:5"}});
  ASSERT_TRUE(config.ok()) << config.error();
  EXPECT_EQ(config.value().mode, Mode::kAuto);
  EXPECT_TRUE(config.value().trace_fast);
  EXPECT_FALSE(config.value().trace_waits);
}

TEST(ConfigTest, TraceAndAllocNeedADirectory) {
  for (const char* mode : {"Trace", "Alloc", "Auto"}) {
    EXPECT_THAT(ErrorOf({{"STALLOC_MODE", mode}}), AllOf(HasSubstr("STALLOC_MODEL_INFO_PATH"), HasSubstr(mode)));
    // Set but empty is as good as not set.
    EXPECT_THAT(ErrorOf({{"STALLOC_MODE", mode}, {"STALLOC_MODEL_INFO_PATH", ""}}),
                HasSubstr("STALLOC_MODEL_INFO_PATH"));
  }
  EXPECT_TRUE(Read({{"STALLOC_MODE", "Torch"}}).ok());
}

TEST(ConfigTest, SizesHaveTheUnitsOfSizeText) {
  const Result<Config> config = Read({{"STALLOC_MEMORY_LIMIT", "1.5 GiB"}});
  ASSERT_TRUE(config.ok()) << config.error();
  EXPECT_EQ(config.value().memory_limit, Bytes{3} << 29);
}

TEST(ConfigTest, WhatStaysFreeForOthersIsASizeOrNotSaid) {
  EXPECT_FALSE(Read({}).value().keep_free.has_value());
  EXPECT_EQ(Read({{"STALLOC_KEEP_FREE", "0"}}).value().keep_free, Bytes{0});
  EXPECT_EQ(Read({{"STALLOC_KEEP_FREE", "4G"}}).value().keep_free, Bytes{4} << 30);
  EXPECT_THAT(ErrorOf({{"STALLOC_KEEP_FREE", "much"}}), AllOf(HasSubstr("STALLOC_KEEP_FREE"), HasSubstr("\"much\"")));
}

TEST(ConfigTest, GraphsAreSharedApartOrPoisoned) {
  const auto read = [](const char* value) {
    const Config config = Read({{"STALLOC_GRAPHS", value}}).value();
    return std::pair(config.shares_graphs, config.poisons_graphs);
  };
  EXPECT_EQ(read(""), std::pair(true, false));
  EXPECT_EQ(read("Shared"), std::pair(true, false));
  EXPECT_EQ(read("apart"), std::pair(false, false));
  EXPECT_EQ(read("Poison"), std::pair(true, true));
  EXPECT_THAT(ErrorOf({{"STALLOC_GRAPHS", "poisoned"}}),
              AllOf(HasSubstr("STALLOC_GRAPHS"), HasSubstr("shared, apart or poison"), HasSubstr("\"poisoned\"")));
}

TEST(ConfigTest, BadSizesAreErrors) {
  for (const char* text : {"x", "-1", "2GG", "16777216T", "40"}) {
    EXPECT_THAT(ErrorOf({{"STALLOC_MEMORY_LIMIT", text}}),
                AllOf(HasSubstr("STALLOC_MEMORY_LIMIT"), HasSubstr(std::string("\"") + text + "\"")));
  }
}

TEST(ConfigTest, BadFlagsLevelsAndChoicesAreErrors) {
  const std::map<std::string, std::string> wrong = {{"STALLOC_TRACE_FAST_MODE", "yes"}, {"STALLOC_STRICT", "2"},
                                                    {"STALLOC_LOG_LEVEL", "4"},         {"STALLOC_LOG_LEVEL", "-1"},
                                                    {"STALLOC_LOG_LEVEL", "1x"},        {"STALLOC_DYNAMIC", "maybe"},
                                                    {"STALLOC_STATIC_FALLBACK", "on"}};
  for (const auto& [name, value] : wrong) {
    EXPECT_THAT(ErrorOf({{name, value}}), AllOf(HasSubstr(name), HasSubstr("\"" + value + "\"")));
  }
}

TEST(ConfigTest, NumbersOfTheLogLevelAreAliases) {
  const std::map<std::string, LogSeverity> levels = {
      {"0", LogSeverity::kDebug},         {"1", LogSeverity::kDebug},     {"2", LogSeverity::kDebug},
      {"3", LogSeverity::kInfo},          {"debug", LogSeverity::kDebug}, {"info", LogSeverity::kInfo},
      {"warning", LogSeverity::kWarning}, {"ERROR", LogSeverity::kError}, {"off", LogSeverity::kOff}};
  for (const auto& [text, level] : levels) {
    const Result<Config> config = Read({{"STALLOC_LOG_LEVEL", text}});
    ASSERT_TRUE(config.ok()) << config.error();
    EXPECT_EQ(config.value().log_level, level) << text;
  }
}

TEST(ConfigTest, RanksOfOneLaunchHaveItsNumber) {
  const auto launch = [](const char* rank, const char* port, const char* world) {
    const Result<Config> config =
        Read({{"RANK", rank}, {"WORLD_SIZE", world}, {"MASTER_ADDR", "host"}, {"MASTER_PORT", port}});
    return config.ok() ? config.value().launch : 0;
  };
  EXPECT_NE(launch("0", "29500", "4"), 0u);
  EXPECT_EQ(launch("0", "29500", "4"), launch("3", "29500", "4"));
  EXPECT_NE(launch("0", "29500", "4"), launch("0", "29501", "4"));
  EXPECT_EQ(launch("0", "29500", "1"), 0u) << "alone";
}

TEST(ConfigTest, EveryVariableIsTaken) {
  const Result<Config> config = Read({{"STALLOC_MODE", "Trace"},
                                      {"STALLOC_MODEL_INFO_PATH", "/data/run1"},
                                      {"STALLOC_TRACE_FAST_MODE", "1"},
                                      {"STALLOC_LOG_LEVEL", "Warning"},
                                      {"STALLOC_STRICT", "1"},
                                      {"STALLOC_OOM_REPORT", "oom.json"},
                                      {"STALLOC_DYNAMIC", "AUTO"},
                                      {"STALLOC_STATIC_FALLBACK", "0"},
                                      {"STALLOC_LIB_PATH", "/opt/lib"}});
  ASSERT_TRUE(config.ok()) << config.error();
  EXPECT_TRUE(config.value().trace_fast);
  EXPECT_TRUE(config.value().strict);
  EXPECT_EQ(config.value().log_level, LogSeverity::kWarning);
  EXPECT_EQ(config.value().oom_report, "oom.json");
  EXPECT_EQ(config.value().dynamic, "auto");
  EXPECT_FALSE(config.value().static_fallback);
  EXPECT_EQ(config.value().lib_path, "/opt/lib");
}

TEST(ConfigTest, TheFirstLauncherThatSetARankGivesAllThreeNumbers) {
  const Result<Config> torchrun = Read({{"RANK", "5"},
                                        {"LOCAL_RANK", "1"},
                                        {"WORLD_SIZE", "8"},
                                        {"SLURM_PROCID", "0"},
                                        {"SLURM_LOCALID", "0"},
                                        {"SLURM_NTASKS", "2"}});
  ASSERT_TRUE(torchrun.ok());
  EXPECT_EQ(torchrun.value().rank, 5u);
  EXPECT_EQ(torchrun.value().local_rank, 1u);
  EXPECT_EQ(torchrun.value().world_size, 8u);
  const Result<Config> slurm = Read({{"SLURM_PROCID", "3"}, {"SLURM_LOCALID", "3"}, {"SLURM_NTASKS", "4"}});
  ASSERT_TRUE(slurm.ok());
  EXPECT_EQ(slurm.value().rank, 3u);
  EXPECT_EQ(slurm.value().world_size, 4u);
}

TEST(ConfigTest, BadRanksAreErrors) {
  EXPECT_THAT(ErrorOf({{"RANK", "one"}}), HasSubstr("RANK must be"));
  EXPECT_THAT(ErrorOf({{"RANK", "0"}, {"WORLD_SIZE", "0"}}), HasSubstr("WORLD_SIZE must be"));
  EXPECT_THAT(ErrorOf({{"RANK", "0"}, {"LOCAL_RANK", "-2"}}), HasSubstr("LOCAL_RANK must be"));
  EXPECT_THAT(ErrorOf({{"PMI_RANK", "4294967296"}}), HasSubstr("PMI_RANK must be"));
}

TEST(ConfigTest, PathsCarryTheRank) {
  Config config;
  config.model_info_path = "/data/run1/";
  config.rank = 12;
  EXPECT_EQ(config.TracePath(), "/data/run1/trace/rank00012.trace");
  EXPECT_EQ(config.FirstTracePath(), config.TracePath());
  EXPECT_EQ(config.PlanPath(), "/data/run1/output/plan/rank00012.plan");
  EXPECT_EQ(config.SummaryPath(), "/data/run1/log_output/rank00012.summary.json");
}

TEST(ConfigTest, ThePlanMayBeAnotherRanks) {
  Result<Config> config = Read({{"RANK", "5"}, {"STALLOC_PLAN_RANK", "1"}});
  ASSERT_TRUE(config.ok()) << config.error();
  EXPECT_THAT(config.value().PlanPath(), HasSubstr("rank00001.plan"));
  EXPECT_THAT(config.value().TracePath(), HasSubstr("rank00005.trace"));
  EXPECT_THAT(ErrorOf({{"STALLOC_PLAN_RANK", "one"}}), HasSubstr("STALLOC_PLAN_RANK must be"));
}

TEST(ConfigTest, ATraceThatBeginsLateWaits) {
  const auto waits = [](const char* steps) {
    const Result<Config> config =
        Read({{"STALLOC_MODE", "Trace"}, {"STALLOC_MODEL_INFO_PATH", "d"}, {"STALLOC_TRACE_STEPS", steps}});
    EXPECT_TRUE(config.ok()) << steps;
    return config.ok() && config.value().trace_waits;
  };
  for (const char* late : {"2:5", "1:", "manual"}) EXPECT_TRUE(waits(late)) << late;
  for (const char* at_once : {"5", "0:5", "0:"}) EXPECT_FALSE(waits(at_once)) << at_once;
  for (const char* wrong : {"0", "5:2", "2:2", ":5", "a", "2:b", "-1", "1:2:3", "99999999999999999999"}) {
    EXPECT_THAT(ErrorOf({{"STALLOC_TRACE_STEPS", wrong}}),
                AllOf(HasSubstr("STALLOC_TRACE_STEPS must be N"), HasSubstr(wrong)));
  }
}

TEST(ConfigTest, RanksThatAreNotListedAreNotTraced) {
  const auto mode = [](const char* mode_name, const char* ranks, const char* rank) {
    const Result<Config> config = Read({{"STALLOC_MODE", mode_name},
                                        {"STALLOC_MODEL_INFO_PATH", "d"},
                                        {"STALLOC_TRACE_RANKS", ranks},
                                        {"RANK", rank}});
    EXPECT_TRUE(config.ok()) << config.error();
    return config.ok() ? config.value().mode : Mode::kTorch;
  };
  EXPECT_EQ(mode("Trace", "0,3", "3"), Mode::kTrace);
  EXPECT_EQ(mode("Trace", "0,3", "2"), Mode::kTorch);
  EXPECT_EQ(mode("Trace", "1,4-6", "5"), Mode::kTrace);
  EXPECT_EQ(mode("Trace", "1,4-6", "7"), Mode::kTorch);
  EXPECT_EQ(mode("Alloc", "0", "7"), Mode::kAlloc);
  for (const char* wrong : {"0,", ",", "a", "3-1", "1-", "0 3"}) {
    EXPECT_THAT(ErrorOf({{"STALLOC_TRACE_RANKS", wrong}}),
                AllOf(HasSubstr("STALLOC_TRACE_RANKS must be ranks"), HasSubstr(wrong)));
  }
}

TEST(ConfigTest, StacksAreCountedOrMeasured) {
  const auto read = [](const char* stacks) {
    const Result<Config> config = Read({{"STALLOC_TRACE_STACKS", stacks}});
    EXPECT_TRUE(config.ok()) << stacks;
    return config.ok() ? std::pair(config.value().trace_stacks_every, config.value().trace_stacks_least)
                       : std::pair(~0u, Bytes{0});
  };
  EXPECT_EQ(read("0"), std::pair(0u, Bytes{0}));
  EXPECT_EQ(read("1"), std::pair(1u, Bytes{0}));
  EXPECT_EQ(read("100"), std::pair(100u, Bytes{0}));
  EXPECT_EQ(read("64K"), std::pair(0u, Bytes{64} << 10));
  for (const char* wrong : {"all", "-1", "99999999999", "1X"}) {
    EXPECT_THAT(ErrorOf({{"STALLOC_TRACE_STACKS", wrong}}),
                AllOf(HasSubstr("STALLOC_TRACE_STACKS must be"), HasSubstr(wrong)));
  }
}

TEST(ConfigTest, UsesAreRecordedWhereTheyAreAskedFor) {
  EXPECT_FALSE(Read({}).value().trace_uses);
  EXPECT_TRUE(Read({{"STALLOC_TRACE_USES", "1"}}).value().trace_uses);
  EXPECT_THAT(ErrorOf({{"STALLOC_TRACE_USES", "all"}}), HasSubstr("STALLOC_TRACE_USES"));
}

TEST(ConfigTest, BlocksAreWatchedWhereItIsAskedFor) {
  EXPECT_FALSE(Read({}).value().watch);
  EXPECT_TRUE(Read({{"STALLOC_WATCH", "1"}}).value().watch);
  EXPECT_TRUE(Read({{"STALLOC_TEST_MOVES", "1"}}).value().test_moves);
  EXPECT_THAT(ErrorOf({{"STALLOC_WATCH", "2"}}), HasSubstr("STALLOC_WATCH"));
}

TEST(ConfigTest, WhatAStartShallHoldIsForAutoAlone) {
  EXPECT_EQ(Read({{"STALLOC_HELD_LIMIT", "8388608"}}).value().held_limit, 0);
  const auto automatic =
      Read({{"STALLOC_MODE", "Auto"}, {"STALLOC_MODEL_INFO_PATH", "/x"}, {"STALLOC_HELD_LIMIT", "8388608"}});
  ASSERT_TRUE(automatic.ok()) << automatic.error();
  EXPECT_EQ(automatic.value().held_limit, Bytes{8} << 20);
}

TEST(ConfigTest, ThePackageTellsWhosePlanAStartHas) {
  EXPECT_EQ(Read({}).value().plan_trust, PlanTrust::kOwn);
  EXPECT_EQ(Read({{"STALLOC_START_PLAN", "checked"}}).value().plan_trust, PlanTrust::kChecked);
  EXPECT_EQ(Read({{"STALLOC_START_PLAN", "guessed"}}).value().plan_trust, PlanTrust::kGuessed);
  EXPECT_THAT(ErrorOf({{"STALLOC_START_PLAN", "1"}}), HasSubstr("STALLOC_START_PLAN must be checked or guessed"));
}

TEST(ConfigTest, TheLimitOfEventsIsRead) {
  const Result<Config> config = Read({{"STALLOC_TRACE_MAX_EVENTS", "1000000"}});
  ASSERT_TRUE(config.ok()) << config.error();
  EXPECT_EQ(config.value().trace_max_events, 1'000'000u);
  EXPECT_THAT(ErrorOf({{"STALLOC_TRACE_MAX_EVENTS", "0"}}), HasSubstr("STALLOC_TRACE_MAX_EVENTS must be a number"));
}

}  // namespace
}  // namespace stalloc
