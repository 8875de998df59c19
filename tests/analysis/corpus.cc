#include "tests/analysis/corpus.h"

#include <zlib.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <vector>

namespace stalloc::planner {
namespace {

struct Row {
  int iteration = 0;
  Bytes bytes = 0;
  std::int64_t alloc_tick = 0;
  std::int64_t free_tick = 0;
};

std::string ReadGzip(const std::string& path) {
  const std::unique_ptr<gzFile_s, int (*)(gzFile)> file(gzopen(path.c_str(), "rb"), gzclose);
  if (file == nullptr) throw std::runtime_error("cannot open " + path);
  std::string text;
  std::vector<char> buffer(1 << 20);
  int count = 0;
  while ((count = gzread(file.get(), buffer.data(), static_cast<unsigned>(buffer.size()))) > 0) {
    text.append(buffer.data(), static_cast<std::size_t>(count));
  }
  if (count < 0) throw std::runtime_error("cannot read " + path);
  return text;
}

std::vector<Row> ParseRows(const std::string& text) {
  std::istringstream lines(text);
  std::vector<Row> rows;
  for (Row row; lines >> row.iteration >> row.bytes >> row.alloc_tick >> row.free_tick;) {
    rows.push_back(row);
  }
  return rows;
}

}  // namespace

Trace ReadCorpus(const std::string& name) {
  const char* root = std::getenv("STALLOC_SOURCE_DIR");
  return ReadCorpusFile(std::string(root == nullptr ? "." : root) + "/bench/corpus/" + name + ".txt.gz");
}

Trace ReadCorpusFile(const std::string& path) {
  const std::vector<Row> rows = ParseRows(ReadGzip(path));
  struct Step {
    std::int64_t tick;
    std::size_t row;
    bool is_free;
  };
  std::vector<Step> steps;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    steps.push_back({rows[i].alloc_tick, i, false});
    if (rows[i].free_tick >= 0) {
      steps.push_back({rows[i].free_tick, i, true});
    }
  }
  std::sort(steps.begin(), steps.end(), [](const Step& a, const Step& b) { return a.tick < b.tick; });
  Trace trace;
  trace.complete = true;
  trace.allocations = rows.size();
  trace.streams.push_back({});
  int iteration = -1;
  for (const Step& step : steps) {
    const Row& row = rows[step.row];
    if (!step.is_free && row.iteration != iteration) {
      iteration = row.iteration;
      trace.events.push_back({.kind = EventKind::kMark, .mark = static_cast<std::uint32_t>(trace.marks.size())});
      trace.marks.push_back({.kind = MarkKind::kIteration, .index = iteration, .name = ""});
    }
    trace.events.push_back({.kind = step.is_free ? EventKind::kFree : EventKind::kAlloc,
                            .allocation = step.row,
                            .bytes = step.is_free ? 0 : row.bytes,
                            .time_ns = step.tick});
  }
  return trace;
}

}  // namespace stalloc::planner
