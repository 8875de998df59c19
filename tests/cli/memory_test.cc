// Bounds what the planner keeps in memory for each event of a trace: the whole of `plan`, from file to file.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <sstream>
#include <string>

#include "planner/cli/commands.h"
#include "planner/synth/generator.h"
#include "proto/codec/trace_writer.h"
#include "tests/cli/planner_process.h"

namespace stalloc::planner {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;  // memory is not what it would be
#else
constexpr bool kSanitized = false;
#endif

// What the analysis and a plan may take an event of the trace, with room for other machines.
constexpr double kAnalysisBytesPerEvent = 130;
constexpr double kPlanBytesPerEvent = 360;

// In bytes; VmHWM, VmRSS of this process.
std::uint64_t StatusField(const std::string& name) {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    std::uint64_t kibibytes = 0;
    if (word == name + ":" && status >> kibibytes) return kibibytes * 1024;
  }
  return 0;
}

// From now on VmHWM counts anew.
bool ResetPeak() {
  std::ofstream file("/proc/self/clear_refs");
  file << "5" << std::flush;
  return file.good();
}

// Runs `measure` in a process of its own, so that heaps do not mix, and returns its result.
double InChild(const RunFolder& folder, const std::function<double()>& measure) {
  const pid_t child = fork();
  if (child == 0) {
    std::ofstream(folder.Path("result")) << measure() << std::flush;
    _exit(0);
  }
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  double result = 0;
  std::ifstream(folder.Path("result")) >> result;
  return result;
}

// Returns the number of events.
double WriteSynthetic(const RunFolder& folder) {
  std::filesystem::create_directories(folder.Path("trace"));
  return InChild(folder, [&] {
    SynthOptions options;
    options.iterations = 3;
    options.state = ModelState::kFull;
    const Trace trace = Synthesize(ScaleToBlocks(options, 300000).value()).value();
    const bool written = WriteTraceFile(folder.Path("trace/rank00000.trace"), trace).ok();
    return written ? static_cast<double>(trace.events.size()) : 0.0;
  });
}

// Peak of `plan` with this flag, above what the process had before, for each event; 0 if it fails.
double BytesPerEvent(const RunFolder& folder, double events, const std::string& flag) {
  return InChild(folder, [&] {
    std::ostringstream out;
    std::ostringstream err;
    const std::uint64_t before = StatusField("VmRSS");
    const bool fine = ResetPeak() && RunCommandLine({"plan", folder.path(), "--threads=1", flag}, {out, err}) == 0;
    return fine ? static_cast<double>(StatusField("VmHWM") - before) / events : 0.0;
  });
}

TEST(MemoryTest, IsInProportionToTheTrace) {
  if (kSanitized) GTEST_SKIP() << "sanitizers keep memory of their own";
  if (!ResetPeak()) GTEST_SKIP() << "this machine cannot tell the peak of a process";
  const RunFolder folder;
  const double events = WriteSynthetic(folder);
  ASSERT_GT(events, 500000);
  const double analysis = BytesPerEvent(folder, events, "--trace-only");
  const double plan = BytesPerEvent(folder, events, "--time-limit=0");
  std::cout << "bytes per event: analysis " << analysis << ", plan " << plan << " (" << events << " events)\n";
  EXPECT_GT(analysis, 10);  // or nothing was measured
  EXPECT_GT(plan, 10);
  EXPECT_LT(analysis, kAnalysisBytesPerEvent);
  EXPECT_LT(plan, kPlanBytesPerEvent);
}

}  // namespace
}  // namespace stalloc::planner
