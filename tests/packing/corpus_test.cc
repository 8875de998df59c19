// Recorded training runs and public instances, through the portfolio.
#include "tests/packing/corpus.h"

#include <gtest/gtest.h>

#include <chrono>

#include "planner/packing/csv.h"
#include "planner/packing/plan_check.h"
#include "planner/packing/portfolio.h"
#include "planner/packing/solver.h"

namespace stalloc::planner {
namespace {

struct Expectation {
  const char* run;
  double greatest_ratio;
};

class RecordedRunTest : public testing::TestWithParam<Expectation> {};

INSTANTIATE_TEST_SUITE_P(Corpus, RecordedRunTest,
                         testing::Values(Expectation{"gpt_dense", 1.0}, Expectation{"gpt_moe16", 1.0},
                                         Expectation{"megatron_moe_ep2_rank0", 1.0},
                                         Expectation{"megatron_vpp_rank0", 1.0025}),
                         [](const testing::TestParamInfo<Expectation>& param) { return param.param.run; });

TEST_P(RecordedRunTest, PacksToItsFloor) {
  const auto problem = ReadRecordedRun(SourceRoot() + "/bench/corpus/" + GetParam().run + ".txt.gz");
  ASSERT_TRUE(problem.ok()) << problem.status();
  const Bytes bound = LoadBound(*problem);
  SolveOptions options;
  options.threads = 2;
  // Generous, for machines under load and for sanitizers: the benchmark holds the times.
  options.deadline = std::chrono::steady_clock::now() + std::chrono::seconds(100);
  options.capacity = static_cast<Bytes>(GetParam().greatest_ratio * static_cast<double>(bound));
  const Packing packing = MakePortfolio()->Solve(*problem, options);
  EXPECT_TRUE(CheckPacking(*problem, packing).ok());
  EXPECT_LE(static_cast<double>(packing.height) / static_cast<double>(bound), GetParam().greatest_ratio);
}

constexpr Bytes kPublicCapacity = 1048576;

Packing PackPublicInstance(const NamedFile& file, std::chrono::seconds limit) {
  const auto instance = ReadCsvFile(file.path);
  if (!instance.ok()) {
    ADD_FAILURE() << instance.status();
    return {};
  }
  SolveOptions options;
  options.threads = 2;
  options.deadline = std::chrono::steady_clock::now() + limit;
  options.capacity = kPublicCapacity;
  const Packing packing = MakePortfolio()->Solve(instance->problem, options);
  EXPECT_TRUE(CheckPacking(instance->problem, packing).ok()) << file.name;
  return packing;
}

TEST(PublicInstanceTest, TheInstancesThatTheExactSearchDecidesFitTheirCapacity) {
  const std::vector<NamedFile> files = PublicInstances(SourceRoot());
  if (files.empty()) GTEST_SKIP() << "minimalloc's instances are not in ../shared/traces/minimalloc";
  EXPECT_EQ(files.size(), 11u);
  for (const NamedFile& file : files) {
    const bool is_hard = file.name == "E" || file.name == "I";  // not decided within minutes so far
    if (is_hard) continue;
    EXPECT_LE(PackPublicInstance(file, std::chrono::seconds(60)).height, kPublicCapacity) << file.name;
  }
}

TEST(PublicInstanceTest, HardInstancesPackValidlyInTheTimeGiven) {
  for (const NamedFile& file : PublicInstances(SourceRoot())) {
    if (file.name != "E" && file.name != "I") continue;
    EXPECT_LE(PackPublicInstance(file, std::chrono::seconds(1)).height, kPublicCapacity * 5 / 4) << file.name;
  }
}

}  // namespace
}  // namespace stalloc::planner
