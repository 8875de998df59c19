#include "tests/packing/corpus.h"

#include <zlib.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <map>
#include <memory>
#include <sstream>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace stalloc::planner {
namespace {

namespace fs = std::filesystem;

absl::StatusOr<std::string> ReadGzip(const std::string& path) {
  const std::unique_ptr<gzFile_s, int (*)(gzFile)> file(gzopen(path.c_str(), "rb"), gzclose);
  if (file == nullptr) return absl::NotFoundError(absl::StrCat("cannot open ", path));
  std::string text;
  char buffer[1 << 16];
  int count = 0;
  while ((count = gzread(file.get(), buffer, sizeof(buffer))) > 0) text.append(buffer, count);
  if (count < 0) return absl::DataLossError(absl::StrCat("corrupt gzip file: ", path));
  return text;
}

std::vector<NamedFile> FilesWithEnding(const fs::path& folder, const std::string& ending) {
  std::vector<NamedFile> files;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    if (absl::EndsWith(name, ending)) {
      files.push_back({name.substr(0, name.size() - ending.size()), entry.path().string()});
    }
  }
  std::sort(files.begin(), files.end(), [](const NamedFile& a, const NamedFile& b) { return a.name < b.name; });
  return files;
}

struct RecordedBlock {
  int iteration = 0;  // -1: before the first
  Block block;
};

absl::StatusOr<std::vector<RecordedBlock>> ReadBlocks(const std::string& path) {
  absl::StatusOr<std::string> text = ReadGzip(path);
  if (!text.ok()) return text.status();
  std::istringstream lines(*std::move(text));
  std::vector<RecordedBlock> blocks;
  int iteration = 0;
  Bytes requested = 0;
  Tick last = 0;
  Lifetime life;
  while (lines >> iteration >> requested >> life.begin >> life.end) {
    blocks.push_back({iteration, {.id = blocks.size(), .bytes = BlockBytes(requested), .life = life}});
    last = std::max({last, life.begin, life.end});
  }
  if (!lines.eof()) return absl::DataLossError(absl::StrCat(path, ": bad line after ", blocks.size()));
  for (RecordedBlock& recorded : blocks) {
    if (recorded.block.life.end == -1) recorded.block.life.end = last + 1;
  }
  return blocks;
}

}  // namespace

absl::StatusOr<Problem> ReadRecordedRun(const std::string& path) {
  const absl::StatusOr<std::vector<RecordedBlock>> blocks = ReadBlocks(path);
  if (!blocks.ok()) return blocks.status();
  Problem problem;
  for (const RecordedBlock& recorded : *blocks) problem.blocks.push_back(recorded.block);
  return problem;
}

absl::StatusOr<Problem> ReadRecordedIteration(const std::string& path) {
  const absl::StatusOr<std::vector<RecordedBlock>> blocks = ReadBlocks(path);
  if (!blocks.ok()) return blocks.status();
  std::map<int, Tick> begins;  // lines are in order of allocation: an iteration begins at its first
  for (const RecordedBlock& recorded : *blocks) begins.try_emplace(recorded.iteration, recorded.block.life.begin);
  if (begins.size() < 2) return absl::InvalidArgumentError(absl::StrCat(path, ": expected two iterations or more"));
  const Lifetime window{std::next(begins.rbegin())->second, begins.rbegin()->second};
  Problem problem;
  for (const RecordedBlock& recorded : *blocks) {
    Block block = recorded.block;
    if (!block.life.Overlaps(window)) continue;
    block.life = {std::max(block.life.begin, window.begin), std::min(block.life.end, window.end)};
    problem.blocks.push_back(block);
  }
  return problem;
}

std::vector<NamedFile> RecordedRuns(const std::string& root) {
  return FilesWithEnding(fs::path(root) / "bench" / "corpus", ".txt.gz");
}

std::vector<NamedFile> PublicInstances(const std::string& root) {
  return FilesWithEnding(fs::path(root) / ".." / "shared" / "traces" / "minimalloc", ".1048576.csv");
}

std::string SourceRoot() {
  const char* root = std::getenv("STALLOC_SOURCE_DIR");
  return root == nullptr ? "." : root;
}

}  // namespace stalloc::planner
