// Reads a trace file, chunk by chunk, on the planner's side (protobuf, Abseil).
//
// The valid prefix of frames is a valid trace: a file whose tail is cut or corrupt yields its prefix, with complete =
// false and `truncation` saying where and why. A file that is no trace, has an unknown version or whose first chunk is
// corrupt is an error that names the file, what was expected and what was found. Rows are checked as they are read:
// indices refer to what came before, columns have equal lengths, nothing is freed twice. Memory: one chunk, and one bit
// for each allocation so far. Not thread-safe; different readers are independent.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/model/block_use.h"
#include "proto/model/trace.h"

namespace stalloc {

class TraceReader {
 public:
  [[nodiscard]] static absl::StatusOr<std::unique_ptr<TraceReader>> Open(const std::string& path);
  ~TraceReader();
  TraceReader(const TraceReader&) = delete;
  TraceReader& operator=(const TraceReader&) = delete;

  // Appends the next chunk's events, marks and streams to `trace` and updates its other fields. False: there is no
  // more, and trace->complete and trace->truncation are final. To read in bounded memory, clear trace->events between
  // calls: indices of allocations and marks count from the start of the file all the same. After an error every call
  // returns it.
  [[nodiscard]] absl::StatusOr<bool> ReadChunk(Trace* trace);

  // For the chunk that was read last; empty where uses were not recorded. There may be several for each event, so they
  // are handed out a chunk at a time, and a Trace does not keep them.
  [[nodiscard]] const std::vector<BlockUse>& uses() const;

  [[nodiscard]] std::uint64_t bytes_read() const;
  [[nodiscard]] std::uint64_t bytes_total() const;  // as found by Open; a live process may append meanwhile

 private:
  class Impl;
  explicit TraceReader(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// Called after every chunk.
using ReadProgress = std::function<void(std::uint64_t bytes_read, std::uint64_t bytes_total)>;

// The whole file. `progress` may be empty.
[[nodiscard]] absl::StatusOr<Trace> ReadTrace(const std::string& path, const ReadProgress& progress = {});

}  // namespace stalloc
