// Converts the columns of each TraceChunk message to rows, and checks them against what came before.
// Private to proto/codec. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "proto/model/block_use.h"
#include "proto/model/trace.h"
#include "proto/trace.pb.h"

namespace stalloc {

class TraceRows {
 public:
  // Appends the chunk's rows, marks, streams, texts, named tensors and inputs of layers to `trace`. Empty, or the first
  // rule that the chunk breaks; then nothing is appended and this object's counts are as before.
  [[nodiscard]] std::string Append(const proto::TraceChunk& chunk, Trace* trace);

  // For the chunk that was appended last.
  [[nodiscard]] const std::vector<BlockUse>& uses() const { return uses_; }
  [[nodiscard]] std::uint64_t chunks() const { return chunks_; }
  [[nodiscard]] std::uint64_t events() const { return events_; }

 private:
  [[nodiscard]] std::string CheckColumns(const proto::TraceChunk& chunk) const;
  [[nodiscard]] std::string TakeMarks(const proto::TraceChunk& chunk, std::vector<Mark>* marks) const;
  [[nodiscard]] std::string TakeStreams(const proto::TraceChunk& chunk, std::vector<StreamInfo>* streams) const;
  [[nodiscard]] std::string TakeCalls(const proto::StackCalls& message, std::vector<StackCall>* calls) const;
  [[nodiscard]] std::string TakeTensors(const proto::NamedTensors& message, std::vector<NamedTensor>* tensors) const;
  // `events`: rows of the file, with those of the chunk in hand.
  [[nodiscard]] std::string TakeUses(const proto::BlockUses& message, std::uint64_t events,
                                     std::vector<BlockUse>* uses) const;
  [[nodiscard]] std::string TakeRows(const proto::TraceChunk& chunk, Trace* trace);
  [[nodiscard]] std::string TakeAddresses(const proto::TraceChunk& chunk, std::size_t first_row, Trace* trace) const;
  [[nodiscard]] std::string TakeRow(const proto::TraceChunk& chunk, int row, TraceEvent* event);
  [[nodiscard]] std::string TakeSubject(std::uint64_t subject, std::uint64_t value, TraceEvent* event);

  std::uint64_t chunks_ = 0;
  std::uint64_t events_ = 0;
  std::uint64_t marks_ = 0;    // with those of the chunk in hand
  std::uint64_t streams_ = 0;  // the same
  std::uint64_t texts_ = 0;    // the same
  std::uint64_t calls_ = 0;    // the same
  std::int64_t time_ns_ = 0;
  std::vector<bool> freed_;                 // by allocation index; its size is the number of allocations
  std::vector<std::uint64_t> newly_freed_;  // by the chunk in hand
  std::vector<BlockUse> uses_;
};

}  // namespace stalloc
