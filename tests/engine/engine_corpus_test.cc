// The engine on recorded iterations that are disturbed in one place: what the disturbance costs the rest of them, with
// the blocks' true lifetimes. A request that was given the wrong place is not done with its own: every later user of
// those bytes is turned away until it is freed. Matching alone (matcher_corpus_test.cc) does not see that.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <random>
#include <string>
#include <vector>

#include "allocator/engine/plan_engine.h"
#include "tests/engine/corpus.h"
#include "tests/engine/first_fit_plan.h"

namespace stalloc {
namespace {

std::byte* const kBase = reinterpret_cast<std::byte*>(std::uintptr_t{1} << 40);  // never touched

using Steps = std::vector<ReplayStep>;

// A run: requests as they are asked for, the steps over them, and how many of the first steps come before what is
// counted.
struct Run {
  std::vector<CorpusAllocation> requests;
  Steps steps;
  std::size_t counted_from = 0;
};

struct Recorded {
  explicit Recorded(const std::string& name)
      : requests(ReadCorpus(name).Iteration(2)), steps(StepsOf(requests)), plan(FirstFitPlan(requests)) {
    for (std::size_t i = 0; i < steps.size(); ++i) {
      if (steps[i].allocate) step_of.push_back(i);
    }
  }
  std::vector<CorpusAllocation> requests;
  Steps steps;
  std::vector<std::size_t> step_of;  // of each request
  DevicePlan plan;
};

const Recorded& Recording(const std::string& name) {
  static const Recorded dense("gpt_dense");
  static const Recorded pipeline("megatron_vpp_rank0");
  return name == "gpt_dense" ? dense : pipeline;
}

struct Score {
  std::size_t requests = 0;
  std::size_t missed = 0;
};

// One undisturbed iteration, then the run; the score is of its requests from `counted_from` on.
Score Replay(const Recorded& recording, const Run& run) {
  PlanEngine engine(recording.plan, kBase, nullptr);
  const auto replay = [&engine](const std::vector<CorpusAllocation>& requests, const Steps& steps, std::size_t from) {
    Score score;
    std::vector<void*> blocks(requests.size(), nullptr);
    engine.OnMark({MarkKind::kIteration, MarkEdge::kBegin, Pass::kNone, 0, 0, "", false});
    for (std::size_t i = 0; i < steps.size(); ++i) {
      void*& block = blocks[steps[i].request];
      if (steps[i].allocate) {
        block = engine.Allocate(requests[steps[i].request].bytes, 0).pointer;
        score.requests += i >= from ? 1 : 0;
        score.missed += i >= from && block == nullptr ? 1 : 0;
      } else if (block != nullptr) {
        engine.Free(block);
      }
    }
    return score;
  };
  const Score whole = replay(recording.requests, recording.steps, 0);
  EXPECT_EQ(whole.missed, 0u);
  const Score score = replay(run.requests, run.steps, run.counted_from);
  EXPECT_EQ(engine.CheckInvariants(), "");
  return score;
}

// Steps after which a block is freed that the program does not have.
enum class Life { kNone, kRandom, kForever };

// A request of `bytes` before request `at`.
Run Insert(const Recorded& recording, std::size_t at, Bytes bytes, Life life, std::mt19937_64& random) {
  Run run{recording.requests, {}, 0};
  const auto extra = static_cast<std::uint32_t>(run.requests.size());
  run.requests.push_back({0, bytes, 0, 0});
  const std::size_t begin = recording.step_of[at];
  std::size_t end = recording.steps.size();
  if (life == Life::kNone) end = begin;
  if (life == Life::kRandom) {  // as long as some other block lives
    const std::size_t other = random() % recording.requests.size();
    const auto freed = std::find_if(recording.steps.begin(), recording.steps.end(), [other](const ReplayStep& step) {
      return !step.allocate && step.request == other;
    });
    const std::size_t lived = static_cast<std::size_t>(freed - recording.steps.begin()) - recording.step_of[other];
    end = std::min(end, begin + lived);
  }
  for (std::size_t i = 0; i <= recording.steps.size(); ++i) {
    if (i == begin) {
      run.steps.push_back({true, extra});
      run.counted_from = run.steps.size();
    }
    if (i == end) run.steps.push_back({false, extra});
    if (i < recording.steps.size()) run.steps.push_back(recording.steps[i]);
  }
  return run;
}

Run Drop(const Recorded& recording, std::size_t at) {
  Run run{recording.requests, {}, recording.step_of[at]};
  for (const ReplayStep& step : recording.steps) {
    if (step.request != at) run.steps.push_back(step);
  }
  return run;
}

Run Resize(const Recorded& recording, std::size_t at, Bytes bytes) {
  Run run{recording.requests, recording.steps, recording.step_of[at] + 1};
  run.requests[at].bytes = bytes;
  return run;
}

// The request and the next one change places.
Run Swap(const Recorded& recording, std::size_t at) {
  Run run{recording.requests, recording.steps, recording.step_of[at + 1] + 1};
  const std::size_t first = recording.step_of[at];
  const std::size_t second = recording.step_of[at + 1];
  std::rotate(run.steps.begin() + static_cast<std::ptrdiff_t>(first),
              run.steps.begin() + static_cast<std::ptrdiff_t>(second),
              run.steps.begin() + static_cast<std::ptrdiff_t>(second) + 1);
  return run;
}

// Freed only `later` steps after its time.
Run FreeLate(const Recorded& recording, std::size_t at, std::size_t later) {
  Run run{recording.requests, {}, recording.step_of[at] + 1};
  std::size_t due = recording.steps.size();
  for (std::size_t i = 0; i < recording.steps.size(); ++i) {
    const ReplayStep& step = recording.steps[i];
    if (!step.allocate && step.request == at) {
      due = i + later;
    } else {
      run.steps.push_back(step);
    }
    if (i == due) run.steps.push_back({false, static_cast<std::uint32_t>(at)});
  }
  if (due >= recording.steps.size()) run.steps.push_back({false, static_cast<std::uint32_t>(at)});
  return run;
}

struct Edit {
  const char* name;
  double floor;  // of the mean share that is served
  Run (*apply)(const Recorded& recording, std::size_t at, std::mt19937_64& random);
};

Bytes AnySize(const Recorded& recording, std::mt19937_64& random) {
  return recording.requests[random() % recording.requests.size()].bytes;
}

const Edit kEdits[] = {
    {"known size inserted, freed at once", 0.99,
     [](const Recorded& r, std::size_t at, std::mt19937_64& random) {
       return Insert(r, at, AnySize(r, random), Life::kNone, random);
     }},
    {"known size inserted, with some block's life", 0.99,
     [](const Recorded& r, std::size_t at, std::mt19937_64& random) {
       return Insert(r, at, AnySize(r, random), Life::kRandom, random);
     }},
    {"known size inserted, kept", 0.99,
     [](const Recorded& r, std::size_t at, std::mt19937_64& random) {
       return Insert(r, at, AnySize(r, random), Life::kForever, random);
     }},
    {"the expected size inserted, freed at once", 0.99,
     [](const Recorded& r, std::size_t at, std::mt19937_64& random) {
       return Insert(r, at, r.requests[at].bytes, Life::kNone, random);
     }},
    {"the expected size inserted, kept", 0.9,
     [](const Recorded& r, std::size_t at, std::mt19937_64& random) {
       return Insert(r, at, r.requests[at].bytes, Life::kForever, random);
     }},
    {"dropped", 0.99, [](const Recorded& r, std::size_t at, std::mt19937_64&) { return Drop(r, at); }},
    {"resized to a known size", 0.99,
     [](const Recorded& r, std::size_t at, std::mt19937_64& random) { return Resize(r, at, AnySize(r, random)); }},
    {"resized to an unknown size", 0.99,
     [](const Recorded& r, std::size_t at, std::mt19937_64&) { return Resize(r, at, Bytes{0x40000000} + 512); }},
    {"swapped with the next", 0.99, [](const Recorded& r, std::size_t at, std::mt19937_64&) { return Swap(r, at); }},
    {"freed 100 steps late", 0.99,
     [](const Recorded& r, std::size_t at, std::mt19937_64&) { return FreeLate(r, at, 100); }},
};

class EngineCorpusTest : public testing::TestWithParam<const char*> {};

TEST_P(EngineCorpusTest, OneDisturbanceLeavesTheRestOfTheIterationToThePlan) {
  const Recorded& recording = Recording(GetParam());
  constexpr std::uint64_t kSeed = 1;
#if defined(STALLOC_CHECKED)
  constexpr int kTrials = 3;  // walkers make each some thirty times as dear
#else
  constexpr int kTrials = 50;
#endif
  for (const Edit& edit : kEdits) {
    std::mt19937_64 random(kSeed);
    double missed = 0;
    double share = 0;
    double worst = 0;
    for (int trial = 0; trial < kTrials; ++trial) {
      const std::size_t at = random() % (recording.requests.size() / 2);
      const Score score = Replay(recording, edit.apply(recording, at, random));
      const double lost = static_cast<double>(score.missed) / static_cast<double>(score.requests);
      missed += static_cast<double>(score.missed) / kTrials;
      share += lost / kTrials;
      worst = std::max(worst, lost);
    }
    std::printf("%s: %s: %.2f requests missed on average; %.2f %% of the rest served, %.2f %% at worst\n", GetParam(),
                edit.name, missed, 100 * (1 - share), 100 * (1 - worst));
    EXPECT_GE(1 - share, edit.floor) << edit.name << ", seed " << kSeed;
  }
}

INSTANTIATE_TEST_SUITE_P(Corpus, EngineCorpusTest, testing::Values("gpt_dense", "megatron_vpp_rank0"),
                         [](const auto& parameter) { return std::string(parameter.param); });

}  // namespace
}  // namespace stalloc
