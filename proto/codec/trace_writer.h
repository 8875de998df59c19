// Writes a trace from values: for tests and for tools that convert other recordings. A live process uses
// allocator/record.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "proto/model/block_use.h"
#include "proto/model/trace.h"

namespace stalloc {

struct TraceWriteOptions {
  std::size_t chunk_events = 1u << 14;
  std::vector<BlockUse> uses = {};  // go into the last chunk
};

// A whole file's bytes; the last chunk is marked as such if trace.complete. Marks and streams go into the chunk where
// they are first used (those never used, into the last), named
// tensors and inputs of layers into the last, texts and calls into the first. REQUIRES: indices in
// `trace.events` refer to what came before.
[[nodiscard]] std::string EncodeTrace(const Trace& trace, const TraceWriteOptions& options = {});

// Temporary name, sync, rename: as WritePlanFile.
[[nodiscard]] absl::Status WriteTraceFile(const std::string& path, const Trace& trace,
                                          const TraceWriteOptions& options = {});

}  // namespace stalloc
