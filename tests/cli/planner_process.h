// Runs the real stalloc-planner in a process of its own, and keeps a directory for its input and output.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "proto/model/trace.h"
#include "tests/base/test_files.h"

namespace stalloc::planner {

struct ProcessResult {
  int exit_code = -1;
  std::string out;
  std::string err;
};

// A directory that goes with the object.
class RunFolder {
 public:
  RunFolder() = default;
  // With the trace of rank 0.
  explicit RunFolder(Trace trace) : RunFolder() { WriteTrace(0, std::move(trace)); }
  RunFolder(const RunFolder&) = delete;
  RunFolder& operator=(const RunFolder&) = delete;

  [[nodiscard]] const std::string& path() const { return directory_.path(); }
  [[nodiscard]] std::string Path(const std::string& name) const { return directory_.File(name); }

  // trace/rank0000N.trace
  void WriteTrace(std::uint32_t rank, Trace trace) const;
  void WriteFile(const std::string& name, const std::string& bytes) const;
  [[nodiscard]] std::string ReadFile(const std::string& name) const;  // "" if there is none
  [[nodiscard]] bool Exists(const std::string& name) const;
  // Regular files below the folder, relative, sorted.
  [[nodiscard]] std::vector<std::string> Files() const;

  [[nodiscard]] ProcessResult Run(const std::vector<std::string>& arguments, const std::string& input = "") const;
  // The same; another exit code than `code` fails the test.
  [[nodiscard]] ProcessResult RunTo(int code, const std::vector<std::string>& arguments,
                                    const std::string& input = "") const {
    ProcessResult result = Run(arguments, input);
    EXPECT_EQ(result.exit_code, code) << testing::PrintToString(arguments) << ": " << result.err;
    return result;
  }
  // `serve` of the rank's trace, with these requests; the answers, a line each.
  [[nodiscard]] std::string Ask(std::uint32_t rank, const std::vector<std::string>& requests,
                                const std::vector<std::string>& options = {}) const;

 private:
  TemporaryDirectory directory_;
};

}  // namespace stalloc::planner
