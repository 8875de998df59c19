// `stalloc-planner pack`: flags of planner/packing/pack_command.h.
#include <cstdint>
#include <string>
#include <thread>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "absl/types/optional.h"
#include "planner/cli/commands.h"
#include "planner/cli/flags.h"
#include "planner/cli/stop_signal.h"
#include "planner/packing/pack_command.h"

ABSL_FLAG(std::string, input, "", "The instance: `FILE.csv` with columns id,lower,upper,size; - reads standard input.");
ABSL_FLAG(absl::optional<std::uint64_t>, capacity, absl::nullopt,
          "Height `N` to reach; more is an error (exit code 1).");
ABSL_FLAG(std::string, output, "",
          "`FILE` to write: of pack, the input with a column offset; of synth and import, a trace or an instance.");

namespace stalloc::planner {
namespace {

int RunPackCommand(const std::vector<std::string>& positional, Streams streams) {
  PackOptions options;
  options.name = streams.program + " pack";
  options.input = absl::GetFlag(FLAGS_input);
  if (options.input.empty() && positional.size() == 1) {
    options.input = positional[0];
  } else if (!positional.empty() || options.input.empty()) {
    return FailUsage("pack", "expected one instance, as --input=FILE.csv", streams);
  }
  const double limit = absl::GetFlag(FLAGS_time_limit);
  const std::int32_t threads = absl::GetFlag(FLAGS_threads);
  if (!(limit >= 0 && limit <= 1e6) || threads < 0) {
    return FailUsage("pack", absl::StrCat("--time-limit and --threads must not be negative: ", limit, ", ", threads),
                     streams);
  }
  if (const auto capacity = absl::GetFlag(FLAGS_capacity); capacity.has_value()) {
    options.capacity = *capacity;
  }
  options.time_limit_s = limit;
  options.threads = threads == 0 ? static_cast<int>(std::max(1u, std::thread::hardware_concurrency())) : threads;
  options.output = absl::GetFlag(FLAGS_output);
  options.json = absl::GetFlag(FLAGS_json);
  options.seed = absl::GetFlag(FLAGS_seed);
  options.stop = StopOnInterrupt();
  return RunPack(options, streams.out, streams.err);
}

}  // namespace

const Command& PackCommand() {
  static const Command command{
      {"pack",
       "",
       "Packs one instance of the public CSV format (id,lower,upper,size).",
       "Lifetimes are half-open: [lower, upper). \"(optimal)\" stands where the height is a proved lower bound.\n",
       {"input", "capacity", "output", "json", "threads", "time_limit", "seed"},
       "pack --input=A.csv --output=A.solved.csv\n"
       "pack --input=A.csv --capacity=1048576 --time-limit=60 --json\n"
       "pack - < A.csv\n"},
      RunPackCommand};
  return command;
}

}  // namespace stalloc::planner
