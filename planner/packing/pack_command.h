// `stalloc-planner pack`: packs one instance in the public CSV format.
//
// Results go to `out` (a line of text, or JSON with keys blocks, lower_bound (of load), proved_bound, height, ratio,
// seconds, valid, optimal (height = proved_bound), solver), everything else to `err`. Exit codes: 0 ok; 1 bad input, an
// invalid packing, or more than the capacity.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <ostream>
#include <string>

#include "planner/packing/portfolio.h"
#include "proto/model/units.h"

namespace stalloc::planner {

struct PackOptions {
  std::string name = "stalloc-planner pack";  // which lines on `err` begin with
  std::string input;                          // path of a CSV file; "-" reads standard input
  std::optional<Bytes> capacity;
  double time_limit_s = kDefaultPackingSeconds;  // of work (work.h)
  int threads = 1;
  std::string output;  // path of the solved CSV; empty: none
  bool json = false;
  std::uint64_t seed = 1;
  const std::atomic<bool>* stop = nullptr;        // set by Ctrl-C: the best packing so far is kept
  std::function<void(double ratio)> on_progress;  // height over lower bound, each time it falls; may be empty
};

[[nodiscard]] int RunPack(const PackOptions& options, std::ostream& out, std::ostream& err);

}  // namespace stalloc::planner
