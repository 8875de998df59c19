#include "allocator/runtime/config.h"

#include <array>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <limits>
#include <string_view>
#include <system_error>

#include "allocator/runtime/size_text.h"
#include "allocator/runtime/trace_config.h"

namespace stalloc {
namespace {

constexpr std::string_view kModes = "Torch, Trace, Alloc or Auto";

// Collects the first error, so that the list of variables below reads straight down.
class Reader {
 public:
  explicit Reader(EnvironmentReader environment) : environment_(environment) {}

  [[nodiscard]] const std::string& error() const { return error_; }
  [[nodiscard]] bool IsSet(const char* name) const { return !Value(name).empty(); }
  [[nodiscard]] std::string_view Value(const char* name) const {
    const char* value = environment_(name);
    return value == nullptr ? std::string_view() : std::string_view(value);
  }

  void Fail(const char* name, std::string_view allowed, std::string_view found) {
    if (!error_.empty()) return;
    error_.append(name).append(" must be ").append(allowed).append("; found \"").append(found).append("\"");
  }

  void Text(const char* name, std::string* target) const {
    if (IsSet(name)) *target = Value(name);
  }

  void Flag(const char* name, bool* target) {
    const std::string_view value = Value(name);
    if (value.empty()) return;
    if (value != "0" && value != "1") return Fail(name, "0 or 1", value);
    *target = value == "1";
  }

  template <typename Number>
  void Integer(const char* name, Number least, Number most, std::string_view allowed, Number* target) {
    const std::string_view value = Value(name);
    if (value.empty()) return;
    Number number{};
    const auto [end, code] = std::from_chars(value.data(), value.data() + value.size(), number);
    if (code != std::errc() || end != value.data() + value.size() || number < least || number > most) {
      return Fail(name, allowed, value);
    }
    *target = number;
  }

  void Size(const char* name, Bytes* target);

 private:
  EnvironmentReader environment_;
  std::string error_;
};

bool EqualsIgnoringCase(std::string_view left, std::string_view right) {
  if (left.size() != right.size()) return false;
  for (std::size_t i = 0; i < left.size(); ++i) {
    const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; };
    if (lower(left[i]) != lower(right[i])) return false;
  }
  return true;
}

void Reader::Size(const char* name, Bytes* target) {
  const std::string_view value = Value(name);
  if (value.empty()) return;
  const std::optional<Bytes> size = ParseSize(value);
  if (!size.has_value()) return Fail(name, kSizeAllowed, value);
  *target = *size;
}

void ReadMode(Reader& reader, Config* config) {
  const std::string_view value = reader.Value("STALLOC_MODE");
  if (value.empty()) return;
  for (const Mode mode : {Mode::kTorch, Mode::kTrace, Mode::kAlloc, Mode::kAuto}) {
    if (EqualsIgnoringCase(value, ModeName(mode))) {
      config->mode = mode;
      return;
    }
  }
  reader.Fail("STALLOC_MODE", kModes, value);
}

void ReadLogLevel(Reader& reader, Config* config) {
  struct Level {
    std::string_view name;
    LogSeverity severity;
  };
  constexpr std::array<Level, 9> kLevels = {{{"debug", LogSeverity::kDebug},
                                             {"info", LogSeverity::kInfo},
                                             {"warning", LogSeverity::kWarning},
                                             {"error", LogSeverity::kError},
                                             {"off", LogSeverity::kOff},
                                             {"0", LogSeverity::kDebug},
                                             {"1", LogSeverity::kDebug},
                                             {"2", LogSeverity::kDebug},
                                             {"3", LogSeverity::kInfo}}};
  const std::string_view value = reader.Value("STALLOC_LOG_LEVEL");
  if (value.empty()) return;
  for (const Level& level : kLevels) {
    if (!EqualsIgnoringCase(value, level.name)) continue;
    config->log_level = level.severity;
    return;
  }
  reader.Fail("STALLOC_LOG_LEVEL", "debug, info, warning, error, off or a number from 0 to 3", value);
}

void ReadDynamic(Reader& reader, Config* config) {
  const std::string_view value = reader.Value("STALLOC_DYNAMIC");
  if (value.empty()) return;
  for (const std::string_view allowed : {"0", "1", "auto"}) {
    if (EqualsIgnoringCase(value, allowed)) {
      config->dynamic = allowed;
      return;
    }
  }
  reader.Fail("STALLOC_DYNAMIC", "0, 1 or auto", value);
}

void ReadGraphs(Reader& reader, Config* config) {
  const std::string_view value = reader.Value("STALLOC_GRAPHS");
  if (value.empty() || EqualsIgnoringCase(value, "shared")) return;
  config->shares_graphs = !EqualsIgnoringCase(value, "apart");
  config->poisons_graphs = EqualsIgnoringCase(value, "poison");
  if (config->shares_graphs && !config->poisons_graphs) {
    reader.Fail("STALLOC_GRAPHS", "shared, apart or poison", value);
  }
}

void ReadPlanTrust(Reader& reader, Config* config) {
  const std::string_view value = reader.Value("STALLOC_START_PLAN");
  if (value == "checked") {
    config->plan_trust = PlanTrust::kChecked;
  } else if (value == "guessed") {
    config->plan_trust = PlanTrust::kGuessed;
  } else if (!value.empty()) {
    reader.Fail("STALLOC_START_PLAN", "checked or guessed", value);
  }
}

// One launcher's names for the same three numbers.
struct RankVariables {
  const char* rank;
  const char* local_rank;
  const char* world_size;
};
constexpr std::array<RankVariables, 5> kLaunchers = {{
    {"RANK", "LOCAL_RANK", "WORLD_SIZE"},
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_SIZE"},
    {"SLURM_PROCID", "SLURM_LOCALID", "SLURM_NTASKS"},
    {"PMI_RANK", "MPI_LOCALRANKID", "PMI_SIZE"},
    // For a process that a script starts itself, by the package.
    {"STALLOC_STARTED_RANK", "STALLOC_STARTED_RANK", "STALLOC_STARTED_RANKS"},
}};

void ReadRanks(Reader& reader, Config* config) {
  constexpr std::uint32_t kMost = (1u << 31) - 1;
  for (const RankVariables& launcher : kLaunchers) {
    if (!reader.IsSet(launcher.rank)) continue;
    reader.Integer<std::uint32_t>(launcher.rank, 0, kMost, "a number from 0 on", &config->rank);
    reader.Integer<std::uint32_t>(launcher.local_rank, 0, kMost, "a number from 0 on", &config->local_rank);
    reader.Integer<std::uint32_t>(launcher.world_size, 1, kMost, "a number from 1 on", &config->world_size);
    return;
  }
}

// What launchers set for all ranks alike, and otherwise for another launch at the same time.
std::uint64_t LaunchOf(const Reader& reader) {
  std::string all;
  for (const char* name : {"MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID", "SLURM_JOB_ID", "SLURM_STEP_ID",
                           "PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"}) {
    all.append(reader.Value(name)).push_back('\n');
  }
  const std::size_t hash = std::hash<std::string>()(all);
  return hash != 0 ? hash : 1;
}

void ReadPlanRank(Reader& reader, Config* config) {
  if (!reader.IsSet("STALLOC_PLAN_RANK")) return;
  config->plan_rank = 0;
  reader.Integer<std::uint32_t>("STALLOC_PLAN_RANK", 0, (1u << 31) - 1, "a number from 0 on", &*config->plan_rank);
}

// A plain number counts requests; one with a unit is a size.
void ReadTraceStacks(Reader& reader, Config* config) {
  const std::string_view value = reader.Value("STALLOC_TRACE_STACKS");
  if (value.find_first_not_of("0123456789") == std::string_view::npos) {
    reader.Integer<std::uint32_t>("STALLOC_TRACE_STACKS", 0, (1u << 31) - 1,
                                  "0, 1, N (every Nth request) or a size with its unit, such as 64K",
                                  &config->trace_stacks_every);
  } else {
    reader.Size("STALLOC_TRACE_STACKS", &config->trace_stacks_least);
  }
}

// After the ranks.
void ReadTraceWindow(Reader& reader, Config* config) {
  if (const std::string_view value = reader.Value("STALLOC_TRACE_STEPS"); !value.empty()) {
    const std::optional<TraceSteps> steps = ParseTraceSteps(value);
    if (!steps.has_value()) return reader.Fail("STALLOC_TRACE_STEPS", kTraceStepsAllowed, value);
    config->trace_waits = steps->waits();
  }
  if (const std::string_view value = reader.Value("STALLOC_TRACE_RANKS"); !value.empty()) {
    const std::optional<bool> listed = ListsRank(value, config->rank);
    if (!listed.has_value()) return reader.Fail("STALLOC_TRACE_RANKS", kTraceRanksAllowed, value);
    if (!*listed && config->mode == Mode::kTrace) config->mode = Mode::kTorch;
  }
  reader.Integer<std::uint64_t>("STALLOC_TRACE_MAX_EVENTS", 1, std::numeric_limits<std::uint64_t>::max(),
                                "a number from 1 on", &config->trace_max_events);
}

void RequireDirectory(Reader& reader, const Config& config) {
  if (config.mode == Mode::kTorch || !config.model_info_path.empty()) return;
  const std::string allowed = std::string("the run's directory when STALLOC_MODE is ").append(ModeName(config.mode));
  reader.Fail("STALLOC_MODEL_INFO_PATH", allowed, "");
}

// <directory>/<folder>/rank00000<suffix>
std::string RankPath(std::string path, std::uint32_t rank, std::string_view folder, std::string_view suffix) {
  std::array<char, 32> name{};
  std::snprintf(name.data(), name.size(), "/rank%05u", rank);
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path.append(folder).append(name.data()).append(suffix);
}

}  // namespace

const char* ModeName(Mode mode) noexcept {
  switch (mode) {
    case Mode::kTorch:
      return "Torch";
    case Mode::kTrace:
      return "Trace";
    case Mode::kAlloc:
      return "Alloc";
    case Mode::kAuto:
      return "Auto";
  }
  return "?";
}

std::string Config::TracePath() const { return RankPath(model_info_path, rank, "/trace", ".trace"); }
std::string Config::FirstTracePath() const {
  return start_path.empty() ? TracePath() : RankPath(start_path, rank, "/trace", ".trace");
}
std::string Config::PlanPath() const {
  return RankPath(model_info_path, plan_rank.value_or(rank), "/output/plan", ".plan");
}
std::string Config::ObservedPath() const { return RankPath(model_info_path, rank, "/output/observed", ".observed"); }
std::string Config::SummaryPath() const { return RankPath(model_info_path, rank, "/log_output", ".summary.json"); }

Result<Config> ReadConfig(EnvironmentReader environment) {
  Reader reader(environment);
  Config config;
  ReadMode(reader, &config);
  reader.Text("STALLOC_MODEL_INFO_PATH", &config.model_info_path);
  if (config.mode == Mode::kAuto) reader.Text("STALLOC_START_PATH", &config.start_path);
  reader.Flag("STALLOC_TRACE_FAST_MODE", &config.trace_fast);
  ReadLogLevel(reader, &config);
  reader.Flag("STALLOC_STRICT", &config.strict);
  reader.Size("STALLOC_MEMORY_LIMIT", &config.memory_limit);
  if (config.mode == Mode::kAuto) reader.Size("STALLOC_HELD_LIMIT", &config.held_limit);
  if (reader.IsSet("STALLOC_KEEP_FREE")) reader.Size("STALLOC_KEEP_FREE", &config.keep_free.emplace(0));
  ReadGraphs(reader, &config);
  reader.Text("STALLOC_OOM_REPORT", &config.oom_report);
  ReadDynamic(reader, &config);
  reader.Flag("STALLOC_STATIC_FALLBACK", &config.static_fallback);
  reader.Text("STALLOC_LIB_PATH", &config.lib_path);
  ReadRanks(reader, &config);
  if (config.world_size > 1) config.launch = LaunchOf(reader);
  ReadPlanRank(reader, &config);
  ReadTraceWindow(reader, &config);
  ReadTraceStacks(reader, &config);
  reader.Flag("STALLOC_TRACE_USES", &config.trace_uses);
  reader.Flag("STALLOC_WATCH", &config.watch);
  reader.Flag("STALLOC_TEST_MOVES", &config.test_moves);
  ReadPlanTrust(reader, &config);
  if (config.mode == Mode::kAuto) {
    config.trace_fast = true;
    config.trace_waits = false;  // a plan wants a run from its beginning
  }
  RequireDirectory(reader, config);
  if (!reader.error().empty()) return Error{reader.error()};
  return config;
}

const char* ProcessEnvironment(const char* name) { return std::getenv(name); }

}  // namespace stalloc
