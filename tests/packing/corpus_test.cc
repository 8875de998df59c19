// Recorded training runs and public instances, through the portfolio.
#include "tests/packing/corpus.h"

#include <gtest/gtest.h>

#include <string>

#include "planner/packing/finish/tidy.h"
#include "planner/packing/portfolio.h"
#include "planner/packing/problem/csv.h"
#include "planner/packing/problem/plan_check.h"
#include "planner/packing/search/size_first_fit.h"
#include "planner/packing/search/solver.h"
#include "tests/packing/tidiness.h"

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
                                         Expectation{"megatron_vpp_rank0", 1.0026}),
                         [](const testing::TestParamInfo<Expectation>& param) { return param.param.run; });

TEST_P(RecordedRunTest, PacksToItsFloor) {
  const auto problem = ReadRecordedRun(SourceRoot() + "/bench/corpus/" + GetParam().run + ".txt.gz");
  ASSERT_TRUE(problem.ok()) << problem.status();
  const Bytes bound = LoadBound(*problem);
  SolveOptions options;
  options.threads = 2;
  // Generous: the benchmark holds how soon it is found.
  options.work = WorkOfSeconds(100);
  options.capacity = static_cast<Bytes>(GetParam().greatest_ratio * static_cast<double>(bound));
  const Packing packing = MakePortfolio()->Solve(*problem, options);
  EXPECT_TRUE(CheckPacking(*problem, packing).ok());
  EXPECT_LE(static_cast<double>(packing.height) / static_cast<double>(bound), GetParam().greatest_ratio);
}

// Every eighth size on a stream of its own, as copies and communication have.
void SplitStreams(Problem& problem) {
  for (Block& block : problem.blocks) block.stream = block.bytes / 512 % 8 == 3 ? 1 : 0;
}

class TidyRunTest : public testing::TestWithParam<const char*> {};

INSTANTIATE_TEST_SUITE_P(Corpus, TidyRunTest,
                         testing::Values("gpt_dense", "megatron_moe_ep2_rank0", "megatron_vpp_rank0"),
                         [](const testing::TestParamInfo<const char*>& param) { return std::string(param.param); });

TEST_P(TidyRunTest, GathersIdleSpaceAndSavesWaitsAtTheSameHeight) {
  auto problem = ReadRecordedRun(SourceRoot() + "/bench/corpus/" + GetParam() + ".txt.gz");
  ASSERT_TRUE(problem.ok()) << problem.status();
  const Packing before = MakeSizeFirstFit()->Solve(*problem, {});
  for (const bool two_streams : {false, true}) {
    if (two_streams) SplitStreams(*problem);
    const Packing after = Tidy(*problem, before, {});
    EXPECT_TRUE(CheckPacking(*problem, after).ok());
    EXPECT_EQ(after.height, before.height);
    const Tidiness old_one = MeasureTidiness(*problem, before, {});
    const Tidiness new_one = MeasureTidiness(*problem, after, {});
    if (two_streams) {
      EXPECT_LE(new_one.hand_overs * 4, old_one.hand_overs * 3);
    } else {
      EXPECT_LE(new_one.scatter.share(), 0.95 * old_one.scatter.share());
    }
  }
}

constexpr Bytes kPublicCapacity = 1048576;

Packing PackPublicInstance(const NamedFile& file, double seconds) {
  const auto instance = ReadCsvFile(file.path);
  if (!instance.ok()) {
    ADD_FAILURE() << instance.status();
    return {};
  }
  SolveOptions options;
  options.threads = 2;
  options.work = WorkOfSeconds(seconds);
  options.capacity = kPublicCapacity;
  const Packing packing = MakePortfolio()->Solve(instance->problem, options);
  EXPECT_TRUE(CheckPacking(instance->problem, packing).ok()) << file.name;
  return packing;
}

TEST(PublicInstanceTest, AllFitTheirCapacity) {
  const std::vector<NamedFile> files = PublicInstances(SourceRoot());
  if (files.empty()) GTEST_SKIP() << "minimalloc's instances are not in ../shared/traces/minimalloc";
  EXPECT_EQ(files.size(), 11u);
  for (const NamedFile& file : files) {
    EXPECT_LE(PackPublicInstance(file, 60).height, kPublicCapacity) << file.name;
  }
}

}  // namespace
}  // namespace stalloc::planner
