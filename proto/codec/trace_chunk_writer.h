// Encodes a chunk of a trace, held as columns, into one frame. For the recorder, inside a training process: protozero
// only.
//
// Not thread-safe; the recorder's writer thread owns its chunk. Errors: none; strings that are no UTF-8 (a command line
// may hold anything) are made so, since readers of the message would refuse the whole chunk.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "proto/model/block_use.h"
#include "proto/model/trace.h"

namespace stalloc {

// TraceChunk of trace.proto. Columns of rows have the same length.
struct TraceChunk {
  std::uint64_t first_event = 0;
  bool has_fingerprint = false;
  Fingerprint fingerprint;
  std::vector<std::uint8_t> kind;
  std::vector<std::uint64_t> subject;  // devices by DeviceSubject()
  std::vector<std::uint64_t> value;
  std::vector<std::uint32_t> stream;
  std::vector<std::uint32_t> thread;
  std::vector<std::int64_t> time_delta_ns;
  std::vector<std::uint32_t> flags;
  std::vector<Mark> marks;
  std::vector<StreamInfo> streams;
  std::vector<std::string> texts;
  std::vector<NamedTensor> tensors;
  std::vector<std::uint32_t> stack_plus_one;  // empty, or as long as the others
  std::vector<StackCall> calls;
  std::vector<std::uint64_t> captured_address;  // of the captured allocations among the rows
  std::vector<BlockUse> uses;
  std::vector<BlockUse> layer_inputs;
  std::uint64_t time_origin_ns = 0;
  std::uint64_t live_before = 0;
  bool last = false;

  [[nodiscard]] std::size_t rows() const { return kind.size(); }
  // Nothing in it that a reader would miss.
  [[nodiscard]] bool empty() const {
    return kind.empty() && tensors.empty() && uses.empty() && layer_inputs.empty() && !has_fingerprint && !last;
  }
  void AppendRow(EventKind row_kind, std::uint64_t row_subject, std::uint64_t row_value, std::uint32_t row_stream,
                 std::uint32_t row_thread, std::int64_t row_time_delta_ns, std::uint32_t row_flags);
  // For the row that was appended last. REQUIRES: stack_plus_one > 0.
  void SetStack(std::uint32_t row_stack_plus_one);
  // For the row that was appended last, if that is a captured allocation's. 0: not known.
  void SetAddress(std::uint64_t address);
  // Empties the columns and keeps their memory; the next chunk starts where this one ended.
  void StartNext();
};

// A device as a row's subject: zigzag coded, since the CPU is -1.
[[nodiscard]] std::uint64_t DeviceSubject(DeviceIndex device);

// Appends the chunk's frame to `out`.
void AppendTraceFrame(const TraceChunk& chunk, std::string* out);

// `text` with every byte that is not part of valid UTF-8 replaced by '?'.
[[nodiscard]] std::string ValidUtf8(std::string text);

}  // namespace stalloc
