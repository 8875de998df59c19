// What the benchmarks with tables share: facts of a run, Markdown, files.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"

namespace stalloc::planner {

// How results were made. Holds nothing of the machine or its folders.
struct RunFacts {
  std::string date;  // YYYY-MM-DD
  std::string version;
  std::string compiler;
  std::string command_line;
};

// Of this moment.
[[nodiscard]] RunFacts FactsOf(const std::string& program, const std::vector<std::string>& arguments,
                               const std::string& version, const std::string& compiler);

// Arguments joined by blanks, with the folders cut from those that are paths.
[[nodiscard]] std::string CommandLineWithoutFolders(const std::vector<std::string>& arguments);

// The first row is the header. REQUIRES: not empty, and all rows equally long.
[[nodiscard]] std::string MarkdownTable(const std::vector<std::vector<std::string>>& rows);

// To a temporary name first: a reader never sees half of it. Unavailable: it cannot be written.
[[nodiscard]] absl::Status WriteFile(const std::string& path, const std::string& text);

}  // namespace stalloc::planner
