// A program that carries protobuf's full runtime and Abseil, and loads libstalloc.so into its global scope: each reads
// what the other writes. What libtorch, onnx and TensorFlow bring along is no worse.
//
// Usage: protobuf_clash_test trace|alloc LIBRARY
#include <google/protobuf/stubs/common.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "proto/codec/plan_writer.h"
#include "proto/codec/trace_reader.h"
#include "tests/base/test_files.h"
#include "tests/capi/stalloc_library.h"
#include "tests/runtime/plan_builder.h"

namespace stalloc {
namespace {

int Fail(const std::string& what) {
  std::fprintf(stderr, "protobuf_clash_test: %s\n", what.c_str());
  return 1;
}

std::string Stats(const StallocLibrary& library) {
  const auto stats = STALLOC_FIND(library, stalloc_stats_json);
  std::string text(stats(nullptr, 0) + 1, '\0');
  stats(text.data(), text.size());
  return text;
}

// The library writes, this program's protobuf reads.
int CheckTrace(const StallocLibrary& library, const std::string& directory) {
  if (STALLOC_FIND(library, stalloc_init)() != 0) return Fail(STALLOC_FIND(library, stalloc_last_error)());
  STALLOC_FIND(library, stalloc_mark)(2, 1, 0, 0, 41, "step", 1);
  if (STALLOC_FIND(library, stalloc_flush)() != 0) return Fail(STALLOC_FIND(library, stalloc_last_error)());
  const absl::StatusOr<Trace> trace = ReadTrace(directory + "/trace/rank00000.trace");
  if (!trace.ok()) return Fail(trace.status().ToString());
  if (trace->marks.size() != 1 || trace->marks[0].index != 41 || trace->marks[0].name != "step") return Fail("marks");
  if (trace->fingerprint.command_line.size() != 3) return Fail("command line");
  return 0;
}

// This program's protobuf writes, the library reads.
int CheckAlloc(const StallocLibrary& library, const std::string& directory) {
  Plan plan;
  plan.fingerprint.world_size = 1;
  plan.devices.push_back(PlanBuilder(0).Each(4096).Build());
  const absl::Status written = WritePlanFile(directory + "/output/plan/rank00000.plan", plan);
  if (!written.ok()) return Fail(written.ToString());
  if (STALLOC_FIND(library, stalloc_init)() != 0) return Fail(STALLOC_FIND(library, stalloc_last_error)());
  const std::string stats = Stats(library);
  return stats.find("\"degraded\": null") != std::string::npos ? 0 : Fail(stats);
}

int Run(const std::string& mode, const std::string& path) {
  GOOGLE_PROTOBUF_VERIFY_VERSION;
  const TemporaryDirectory directory;
  setenv("STALLOC_MODE", mode.c_str(), 1);
  setenv("STALLOC_MODEL_INFO_PATH", directory.path().c_str(), 1);
  const StallocLibrary library(path, RTLD_NOW | RTLD_GLOBAL);
  const int failed = mode == "trace" ? CheckTrace(library, directory.path()) : CheckAlloc(library, directory.path());
  google::protobuf::ShutdownProtobufLibrary();
  return failed;
}

}  // namespace
}  // namespace stalloc

int main(int argc, char** argv) {
  if (argc != 3) return stalloc::Fail("usage: protobuf_clash_test trace|alloc LIBRARY");
  return stalloc::Run(argv[1], argv[2]);
}
