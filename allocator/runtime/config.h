// Config: what the environment requests. The one reader of STALLOC_* in C++; read once. Sizes are bytes.
//
// A variable that is set to the empty string counts as unset. Everything that is set is checked, in every mode: a typo
// is an error that names the variable, what is allowed and the value found, never a silent default.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "allocator/base/log.h"
#include "proto/model/result.h"
#include "proto/model/units.h"

namespace stalloc {

enum class Mode : std::uint8_t { kTorch, kTrace, kAlloc, kAuto };
[[nodiscard]] const char* ModeName(Mode mode) noexcept;

// Whose plan the one is that a start under Auto finds.
enum class PlanTrust : std::uint8_t {
  kOwn,      // this run's
  kChecked,  // this command's: it is traced as well until the trace is stopped
  kGuessed,  // another command's: that too, and its memory comes as requests need it
};

struct Config {
  // STALLOC_MODE = Torch | Trace | Alloc | Auto, case-insensitive; anything else is an error. Trace is Torch in a rank
  // that STALLOC_TRACE_RANKS leaves out. Auto is Alloc where there is a plan, else a fast Trace that takes one up.
  Mode mode = Mode::kTorch;
  std::string model_info_path;  // STALLOC_MODEL_INFO_PATH; needed by all but Torch
  // STALLOC_START_PATH: the folder that one start of a run under Auto has for itself, where its trace lies until it is
  // planned; empty: the run's directory. Set by the package.
  std::string start_path;
  bool trace_fast = false;  // STALLOC_TRACE_FAST_MODE=1: native allocator underneath; 0: exact
  // STALLOC_TRACE_STEPS: the trace waits until it is begun (stalloc_start_trace). The window's end is the package's.
  bool trace_waits = false;
  std::uint64_t trace_max_events = 0;  // STALLOC_TRACE_MAX_EVENTS; 0: no limit
  // STALLOC_TRACE_STACKS: Python stacks of every n-th request of a thread (N), or of those of so many bytes (64K).
  std::uint32_t trace_stacks_every = 0;
  Bytes trace_stacks_least = 0;
  bool trace_uses = false;                 // STALLOC_TRACE_USES=1: which operations use which blocks
  PlanTrust plan_trust = PlanTrust::kOwn;  // STALLOC_START_PLAN = checked | guessed. Set by the package
  // STALLOC_LOG_LEVEL = debug | info | warning | error | off, or the published tool's numbers: 0 to 2 (debug), 3 (info)
  LogSeverity log_level = kDefaultLogLevel;
  bool strict = false;     // STALLOC_STRICT=1: what would be a warning and an unplanned run is an error
  Bytes memory_limit = 0;  // STALLOC_MEMORY_LIMIT, bytes with optional K/M/G/T (binary): caps exact Trace's pages
                           // and the host driver; 0 none
  Bytes held_limit = 0;    // STALLOC_HELD_LIMIT, likewise, under Auto: DeviceRuntime::SetHeldLimit. Set by the package
  std::optional<Bytes> keep_free;  // STALLOC_KEEP_FREE, likewise: of the device, for others; none: free_memory.h's
  // STALLOC_GRAPHS = shared | apart | poison: graphs' pools serve other requests between launches, or not; or they do,
  // and what launches leave idle is filled with 0xff, in Trace as well (graph_poison.h)
  bool shares_graphs = true;
  bool poisons_graphs = false;
  // RANK, OMPI_COMM_WORLD_RANK, SLURM_PROCID or PMI_RANK: the first that is set names the launcher, whose own variables
  // then give the local rank and the world size (a torchrun under Slurm has both families, with different numbers).
  // Without any, STALLOC_STARTED_RANK.
  std::uint32_t rank = 0;
  std::uint32_t local_rank = 0;
  std::uint32_t world_size = 1;
  std::uint64_t launch = 0;                // by what the launcher sets: equal in its ranks; 0: there are no others
  std::optional<std::uint32_t> plan_rank;  // STALLOC_PLAN_RANK: whose plan this rank is served from; none: its own
  std::string oom_report;                  // STALLOC_OOM_REPORT
  bool watch = false;                      // STALLOC_WATCH=1: see block_watch.h
  bool test_moves = false;                 // STALLOC_TEST_MOVES=1: memory that may move does so at every mark
  // STALLOC_DYNAMIC = 0 | 1 | auto: what a plan has no slot for is served from its arena, too (1, auto), or not
  std::string dynamic = "auto";

  // Checked and kept for users of the published tool; nothing in this version depends on them.
  bool static_fallback = true;  // STALLOC_STATIC_FALLBACK = 0 | 1: the safety it requests is always on here
  std::string lib_path;         // STALLOC_LIB_PATH

  // $STALLOC_MODEL_INFO_PATH/trace/rank00000.trace and so on.
  [[nodiscard]] std::string TracePath() const;
  [[nodiscard]] std::string FirstTracePath() const;  // where it is written: below start_path, or TracePath()
  [[nodiscard]] std::string PlanPath() const;        // output/plan/rank00000.plan
  [[nodiscard]] std::string ObservedPath() const;    // output/observed/rank00000.observed
  [[nodiscard]] std::string SummaryPath() const;     // log_output/rank00000.summary.json
};

// `getenv`-like source, so that tests need no global environment. Errors name the variable, what is allowed and the
// value.
using EnvironmentReader = const char* (*)(const char* name);
[[nodiscard]] Result<Config> ReadConfig(EnvironmentReader reader);

// The reader for the process's own environment.
[[nodiscard]] const char* ProcessEnvironment(const char* name);

}  // namespace stalloc
