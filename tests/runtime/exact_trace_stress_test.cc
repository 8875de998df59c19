// Exact traces on real bytes: every block holds a pattern of its own from its allocation to its free, while the limit
// is hardly above the live bytes.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "allocator/runtime/planned_space.h"
#include "planner/trial/instant_fence.h"
#include "tests/arena/keyed_pattern.h"
#include "tests/engine/corpus.h"
#include "tests/runtime/traced_fixture.h"

namespace stalloc {
namespace exact_traces {

constexpr Bytes kPage = 4 * 1024;

// A step of a random program.
struct Step {
  bool allocate = false;
  std::size_t block = 0;
  Bytes bytes = 0;
  StreamHandle stream = 0;
  bool record = false;  // on another stream, before the free
};

struct Mix {
  std::string name;
  std::uint64_t seed = 0;
  double small = 0;  // part of the requests that are below a page
  Bytes grain = 1;   // sizes of large requests are multiples of this
  Bytes largest = 0;
  Bytes live_target = 0;
  int streams = 1;
  bool records = false;
  int steps = 0;
};

Bytes LogUniform(std::mt19937_64& random, Bytes low, Bytes high) {
  const double spread = std::uniform_real_distribution<double>(0, 1)(random);
  return static_cast<Bytes>(static_cast<double>(low) *
                            std::pow(static_cast<double>(high) / static_cast<double>(low), spread));
}

struct Program {
  std::vector<Step> steps;
  Bytes peak = 0;  // of the live bytes, rounded to 512 each
};

// Live bytes swing around the target, so that the peak is reached again and again with different blocks.
Program MakeProgram(const Mix& mix) {
  std::mt19937_64 random(mix.seed);
  Program program;
  std::vector<Step> live;
  Bytes live_bytes = 0;
  std::size_t blocks = 0;
  for (int i = 0; i < mix.steps; ++i) {
    const double swing = 0.75 + 0.25 * std::sin(i * 0.002);
    if (live.empty() || live_bytes < static_cast<Bytes>(swing * static_cast<double>(mix.live_target))) {
      Step step;
      step.allocate = true;
      step.block = blocks++;
      step.bytes = std::bernoulli_distribution(mix.small)(random)
                       ? LogUniform(random, 1, kPage)
                       : RoundUp(LogUniform(random, kPage, mix.largest), mix.grain);
      step.stream = 1 + random() % static_cast<std::uint64_t>(mix.streams);
      step.record = mix.records && random() % 8 == 0;
      live_bytes += BlockBytes(step.bytes);
      program.peak = std::max(program.peak, live_bytes);
      program.steps.push_back(step);
      live.push_back(step);
    } else {
      // Old and young blocks die alike.
      std::swap(live[random() % live.size()], live.back());
      Step step = live.back();
      live.pop_back();
      live_bytes -= BlockBytes(step.bytes);
      step.allocate = false;
      program.steps.push_back(step);
    }
  }
  return program;
}

// A recorded training run, from its first allocation to its last event.
Program ProgramOf(const Corpus& corpus) {
  struct Event {
    Tick tick;
    Step step;
  };
  std::vector<Event> events;
  for (std::size_t block = 0; block < corpus.allocations.size(); ++block) {
    const CorpusAllocation& allocation = corpus.allocations[block];
    const auto step = [&](bool allocate) {
      return Step{.allocate = allocate, .block = block, .bytes = allocation.bytes, .stream = 1};
    };
    events.push_back({allocation.alloc, step(true)});
    if (allocation.free >= 0) events.push_back({allocation.free, step(false)});
  }
  std::ranges::sort(events, {}, &Event::tick);
  Program program;
  Bytes live = 0;
  for (const Event& event : events) {
    live = event.step.allocate ? live + BlockBytes(event.step.bytes) : live - BlockBytes(event.step.bytes);
    program.peak = std::max(program.peak, live);
    program.steps.push_back(event.step);
  }
  return program;
}

class ExactTraceTest : public TracedTest {
 protected:
  void Start(Bytes capacity, Bytes limit, Bytes granularity = kPage) {
    StartTraced({.fence = &fence_, .exact = true, .limit_bytes = limit}, capacity, granularity);
  }
  void TearDown() override { runtime_ = nullptr; }  // before its fence
  [[nodiscard]] Bytes held() const { return driver_->GetCounts().handle_bytes; }

  InstantFence fence_;
};

class ExactTraceStress : public ExactTraceTest, public testing::WithParamInterface<Mix> {};

std::vector<Mix> Mixes() {
  return {
      // As training has it: most bytes in blocks of many pages, odd sizes among them, many small ones beside them.
      {"Training", 1, 0.5, 512, 2 * kMiB, 20 * kMiB, 1, false, 3000},
      {"WholePages", 2, 0.3, kPage, 2 * kMiB, 16 * kMiB, 1, false, 3000},
      {"OddBytes", 3, 0.4, 1, 2 * kMiB, 20 * kMiB, 1, false, 3000},
      {"ThreeStreams", 4, 0.5, 512, 2 * kMiB, 20 * kMiB, 3, false, 3000},
      {"RecordedStreams", 5, 0.5, 512, 2 * kMiB, 20 * kMiB, 3, true, 3000},
  };
}

INSTANTIATE_TEST_SUITE_P(, ExactTraceStress, testing::ValuesIn(Mixes()),
                         [](const auto& instance) { return instance.param.name; });

TEST_P(ExactTraceStress, TwoPercentAboveTheLivePeakIsEnoughAndEveryBlockKeepsItsBytes) {
  const Mix& mix = GetParam();
  const Program program = MakeProgram(mix);
  const Bytes limit = program.peak + program.peak / 50;
  Start(2 * program.peak, limit);
  std::map<std::size_t, void*> live;
  int step_number = 0;
  for (const Step& step : program.steps) {
    const Bytes bytes = BlockBytes(step.bytes);
    ++step_number;
    if (step.allocate) {
      void* const block = runtime_->Allocate(step.bytes, step.stream, Origin::kProgram);
      ASSERT_TRUE(runtime_->Owns(block)) << "seed " << mix.seed << " step " << step_number << ": " << log_.text();
      ASSERT_LE(held(), limit);
      FillKeyed(block, bytes, step.block);
      live.emplace(step.block, block);
    } else {
      const auto it = live.find(step.block);
      ASSERT_TRUE(HoldsKeyed(it->second, bytes, step.block)) << "seed " << mix.seed << " step " << step_number;
      if (step.record) runtime_->RecordStream(it->second, step.stream + 1);
      runtime_->Free(it->second);
      live.erase(it);
    }
    if (step_number % 500 == 0) {
      ASSERT_EQ(runtime_->spaces().front()->engine().CheckInvariants(), "") << mix.seed << " step " << step_number;
    }
  }
  const RuntimeStats stats = runtime_->Stats();
  EXPECT_EQ(stats.run.live_bytes, program.peak);
  EXPECT_EQ(stats.upstream, 0u);
  EXPECT_GT(stats.lent.times_moved, 0u) << "the limit was never felt: the test tests nothing";
}

// With a GPU's chunks; no byte is written, so that a machine need not have the memory.
class ExactTraceOfARecordedRun : public ExactTraceTest, public testing::WithParamInterface<const char*> {};

INSTANTIATE_TEST_SUITE_P(, ExactTraceOfARecordedRun,
                         testing::Values("gpt_dense", "gpt_moe16", "megatron_moe_ep2_rank0", "megatron_vpp_rank0"),
                         [](const auto& instance) { return std::string(instance.param); });

TEST_P(ExactTraceOfARecordedRun, FitsTwoPercentAboveItsLivePeak) {
  constexpr Bytes kChunk = Bytes{2} << 20;
  const Program program = ProgramOf(ReadCorpus(GetParam()));
  Start(RoundUp(2 * program.peak, kChunk), program.peak + program.peak / 50, kChunk);
  std::map<std::size_t, void*> live;
  for (const Step& step : program.steps) {
    if (step.allocate) {
      void* const block = runtime_->Allocate(step.bytes, step.stream, Origin::kProgram);
      ASSERT_TRUE(runtime_->Owns(block)) << step.block << ": " << log_.text();
      live.emplace(step.block, block);
    } else {
      runtime_->Free(live.extract(step.block).mapped());
    }
  }
  EXPECT_EQ(runtime_->Stats().run.live_bytes, program.peak);
  EXPECT_EQ(runtime_->Stats().upstream, 0u);
}

TEST_F(ExactTraceTest, ThreadsShareAnArenaThatHoldsHardlyMoreThanTheirLiveBytes) {
  constexpr std::uint64_t kThreads = 4;
  constexpr Bytes kShare = Bytes{3} << 20;  // live bytes of a thread at most
  constexpr std::uint64_t kSeed = 909;
  const Bytes limit = kThreads * kShare * 105 / 100;
  Start(2 * limit, limit);
  const auto work = [&](std::uint64_t thread) {
    std::mt19937_64 random(kSeed + thread);
    struct Block {
      void* address;
      Bytes bytes;
      std::uint64_t key;
    };
    std::vector<Block> live;
    Bytes live_bytes = 0;
    const auto free_one = [&] {
      std::swap(live[random() % live.size()], live.back());
      const Block block = live.back();
      live.pop_back();
      ASSERT_TRUE(HoldsKeyed(block.address, block.bytes, block.key)) << "seed " << kSeed << " thread " << thread;
      if (random() % 16 == 0) runtime_->RecordStream(block.address, 99);
      runtime_->Free(block.address);
      live_bytes -= block.bytes;
    };
    for (std::uint64_t step = 0; step < 800; ++step) {
      const Bytes bytes =
          BlockBytes(random() % 2 == 0 ? LogUniform(random, 1, kPage) : LogUniform(random, kPage, kShare / 4));
      while (live_bytes + bytes > kShare) free_one();
      void* const address = runtime_->Allocate(bytes, thread, Origin::kProgram);
      ASSERT_TRUE(runtime_->Owns(address))
          << "seed " << kSeed << " thread " << thread << " step " << step << ": " << log_.text();
      FillKeyed(address, bytes, thread << 32 | step);
      live.push_back({address, bytes, thread << 32 | step});
      live_bytes += bytes;
    }
    while (!live.empty()) free_one();
  };
  std::vector<std::thread> threads;
  for (std::uint64_t thread = 0; thread < kThreads; ++thread) threads.emplace_back(work, thread);
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(runtime_->spaces().front()->engine().CheckInvariants(), "");
  EXPECT_EQ(runtime_->Stats().live_bytes, 0u);
  EXPECT_LE(runtime_->Stats().run.held_bytes, limit);
}

}  // namespace exact_traces
}  // namespace stalloc
