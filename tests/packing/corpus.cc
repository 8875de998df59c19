#include "tests/packing/corpus.h"

#include <zlib.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
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

}  // namespace

absl::StatusOr<Problem> ReadRecordedRun(const std::string& path) {
  absl::StatusOr<std::string> text = ReadGzip(path);
  if (!text.ok()) return text.status();
  std::istringstream lines(*std::move(text));
  Problem problem;
  int iteration = 0;
  Bytes requested = 0;
  Tick last = 0;
  Lifetime life;
  while (lines >> iteration >> requested >> life.begin >> life.end) {
    problem.blocks.push_back({.id = problem.blocks.size(), .bytes = BlockBytes(requested), .life = life});
    last = std::max({last, life.begin, life.end});
  }
  if (!lines.eof()) return absl::DataLossError(absl::StrCat(path, ": bad line after ", problem.blocks.size()));
  for (Block& block : problem.blocks) {
    if (block.life.end == -1) block.life.end = last + 1;
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
