#include "tests/engine/stress_program.h"

#include <algorithm>

namespace stalloc {
namespace {

bool Happens(double share, std::mt19937_64& random) { return std::uniform_real_distribution<double>()(random) < share; }

}  // namespace

std::vector<CorpusAllocation> RandomProgram(std::size_t count, Bytes max_bytes, std::mt19937_64& random) {
  std::vector<Bytes> sizes;
  for (int i = 0; i < 40; ++i) sizes.push_back(random() % max_bytes >> random() % 6);
  std::vector<CorpusAllocation> program;
  std::vector<std::size_t> live;
  Tick now = 0;
  while (program.size() < count) {
    // Forward: blocks pile up. Backward: they go again, the last ones first, and short-lived ones come in between.
    const bool forward = program.size() % 200 < 110;
    program.push_back({0, std::max<Bytes>(sizes[random() % sizes.size()], 1), now++, -1});
    live.push_back(program.size() - 1);
    for (int frees = static_cast<int>(random() % 4) + (forward ? -2 : 0); frees > 0 && !live.empty(); --frees) {
      const std::size_t depth = random() % std::min<std::size_t>(live.size(), 6);
      const auto victim = live.end() - 1 - static_cast<std::ptrdiff_t>(depth);
      program[*victim].free = now++;
      live.erase(victim);
    }
  }
  return program;
}

StressIteration Diverge(const std::vector<CorpusAllocation>& program, const Divergence& divergence,
                        std::mt19937_64& random) {
  // Each step gets a time that the divergence moves; the order of times is the order of steps.
  std::vector<std::pair<double, ReplayStep>> timed;
  StressIteration iteration;
  const auto end = 2.0 * static_cast<double>(program.size());
  const auto add = [&](Bytes bytes, double allocated, double freed) {
    const auto request = static_cast<std::uint32_t>(iteration.requests.size());
    iteration.requests.push_back({std::max<Bytes>(bytes, 1), false});
    timed.push_back({allocated, {true, request}});
    if (Happens(divergence.freed_late, random)) {
      if (random() % 3 == 0) {
        iteration.requests.back().freed_next_iteration = true;
        return;
      }
      freed += static_cast<double>(random() % 100);
    } else if (Happens(divergence.freed_early, random)) {
      freed = allocated + 0.3;
    }
    timed.push_back({std::max(freed, allocated + 0.1), {false, request}});
  };
  for (const CorpusAllocation& request : program) {
    if (Happens(divergence.dropped, random)) continue;
    auto at = static_cast<double>(request.alloc);
    const double freed = request.free >= 0 ? static_cast<double>(request.free) : end;
    if (Happens(divergence.inserted, random)) {
      add(program[random() % program.size()].bytes, at - 0.5, at + static_cast<double>(random() % 30));
    }
    if (Happens(divergence.swapped, random)) at += static_cast<double>(random() % 5);
    add(Happens(divergence.resized, random) ? request.bytes / 2 + random() % 2048 : request.bytes, at, freed);
  }
  std::stable_sort(timed.begin(), timed.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  for (const auto& [time, step] : timed) iteration.steps.push_back(step);
  return iteration;
}

}  // namespace stalloc
