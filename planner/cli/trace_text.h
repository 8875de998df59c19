// A trace as text or JSON, one event a line.
//
//   1 <id> <bytes> <stream>       allocation; ids count allocations from 0 instead of naming addresses
//   0 <id> <bytes> <stream>       its free
//   2 <id> <bytes> <stream>       record_stream: the block is also used by this stream
//   3 <device> <bytes>            the upstream allocator holds so much now
//   # device <n>                  the device of what follows changed
//   Iteration Index : N           and other marks, in the published tool's words where it has some
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "proto/model/trace.h"

namespace stalloc::planner {

class TraceTextWriter {
 public:
  enum class Format : std::uint8_t { kText, kJson };
  explicit TraceTextWriter(Format format) : format_(format) {}

  // Events in the order of the file; `marks` holds all marks so far. Each line ends with a newline.
  [[nodiscard]] std::string Line(const TraceEvent& event, const std::vector<Mark>& marks);
  // JSON: the calls of stacks that have come since, a line each, to be written before the events that name them. `id`
  // counts from 1, so that 0 is no `parent`.
  [[nodiscard]] std::string NewCalls(const Trace& trace);

 private:
  struct Block {
    Bytes bytes = 0;
    std::uint32_t stream = 0;
    DeviceIndex device = 0;
  };

  [[nodiscard]] std::string TextLine(const TraceEvent& event, const std::vector<Mark>& marks);
  [[nodiscard]] std::string JsonLine(const TraceEvent& event, const std::vector<Mark>& marks) const;

  Format format_;
  std::vector<Block> blocks_;  // by allocation
  std::size_t calls_ = 0;      // written
  DeviceIndex device_ = 0;     // of the line before
};

// "Iteration Index : 3", "micro-batch : F chunk 1 index 0", "mlp Layer : F-start".
[[nodiscard]] std::string MarkText(const Mark& mark);

}  // namespace stalloc::planner
