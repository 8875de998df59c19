#include "bench/plan_quality/output.h"

#include <cstdio>
#include <filesystem>
#include <fstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace stalloc::planner {

RunFacts FactsOf(const std::string& program, const std::vector<std::string>& arguments, const std::string& version,
                 const std::string& compiler) {
  return {.date = absl::FormatTime("%Y-%m-%d", absl::Now(), absl::UTCTimeZone()),
          .version = version,
          .compiler = compiler,
          .command_line = absl::StrCat(program, " ", CommandLineWithoutFolders(arguments))};
}

std::string CommandLineWithoutFolders(const std::vector<std::string>& arguments) {
  std::vector<std::string> words;
  for (const std::string& argument : arguments) {
    const std::size_t equals = argument.find('=');
    const std::size_t value = absl::StartsWith(argument, "-") && equals != std::string::npos ? equals + 1 : 0;
    std::vector<std::string> items = absl::StrSplit(argument.substr(value), ',');
    for (std::string& item : items) item = std::filesystem::path(item).filename().string();
    words.push_back(absl::StrCat(argument.substr(0, value), absl::StrJoin(items, ",")));
  }
  return absl::StrJoin(words, " ");
}

std::string MarkdownTable(const std::vector<std::vector<std::string>>& rows) {
  std::string text = absl::StrCat("| ", absl::StrJoin(rows[0], " | "), " |\n|---");
  for (std::size_t i = 1; i < rows[0].size(); ++i) absl::StrAppend(&text, "|---:");
  absl::StrAppend(&text, "|\n");
  for (std::size_t i = 1; i < rows.size(); ++i) absl::StrAppend(&text, "| ", absl::StrJoin(rows[i], " | "), " |\n");
  return text;
}

absl::Status WriteFile(const std::string& path, const std::string& text) {
  const std::string temporary = absl::StrCat(path, ".tmp");
  std::ofstream out(temporary);
  out << text;
  out.close();
  if (!out || std::rename(temporary.c_str(), path.c_str()) != 0) {
    std::remove(temporary.c_str());
    return absl::UnavailableError(absl::StrCat("cannot write ", path));
  }
  return absl::OkStatus();
}

}  // namespace stalloc::planner
