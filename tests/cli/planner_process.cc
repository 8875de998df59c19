#include "tests/cli/planner_process.h"

#include <sys/wait.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <stdexcept>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "proto/codec/trace_writer.h"

namespace stalloc::planner {
namespace {

std::string Quoted(const std::string& word) {
  std::string quoted = "'";
  for (const char c : word) {
    if (c == '\'') {
      quoted += "'\\''";
    } else {
      quoted += c;
    }
  }
  quoted += '\'';
  return quoted;
}

}  // namespace

void RunFolder::WriteTrace(std::uint32_t rank, Trace trace) const {
  trace.fingerprint.rank = rank;
  trace.fingerprint.world_size = std::max(trace.fingerprint.world_size, rank + 1);
  const absl::Status status =
      WriteTraceFile(Path(absl::StrFormat("trace/rank%05d.trace", rank)), trace, {.chunk_events = 16});
  if (!status.ok()) throw std::runtime_error(status.ToString());
}

void RunFolder::WriteFile(const std::string& name, const std::string& bytes) const {
  std::filesystem::create_directories(std::filesystem::path(Path(name)).parent_path());
  std::ofstream(Path(name), std::ios::binary) << bytes;
}

std::string RunFolder::ReadFile(const std::string& name) const { return stalloc::ReadFile(Path(name)); }

bool RunFolder::Exists(const std::string& name) const { return std::filesystem::exists(Path(name)); }

std::vector<std::string> RunFolder::Files() const {
  std::vector<std::string> files = directory_.Names();
  std::erase_if(files, [this](const std::string& name) { return std::filesystem::is_directory(Path(name)); });
  return files;
}

ProcessResult RunFolder::Run(const std::vector<std::string>& arguments, const std::string& input) const {
  const std::string in = path() + ".in";
  const std::string out = path() + ".out";
  const std::string err = path() + ".err";
  std::string command = Quoted(STALLOC_PLANNER);
  for (const std::string& argument : arguments) absl::StrAppend(&command, " ", Quoted(argument));
  absl::StrAppend(&command, " >", Quoted(out), " 2>", Quoted(err), " <", Quoted(in));
  std::ofstream(in, std::ios::binary) << input;
  const int status = std::system(command.c_str());
  ProcessResult result{WIFEXITED(status) ? WEXITSTATUS(status) : -1, stalloc::ReadFile(out), stalloc::ReadFile(err)};
  for (const std::string& file : {in, out, err}) std::filesystem::remove(file);
  return result;
}

std::string RunFolder::Ask(std::uint32_t rank, const std::vector<std::string>& requests,
                           const std::vector<std::string>& options) const {
  std::vector<std::string> arguments{"serve", Path(absl::StrFormat("trace/rank%05d.trace", rank))};
  arguments.insert(arguments.end(), options.begin(), options.end());
  return Run(arguments, absl::StrJoin(requests, "\n") + "\n").out;
}

}  // namespace stalloc::planner
