// TraceAssembler: makes the rows of a trace from recorded events, in their order.
//
// Pairs addresses with allocation indices and gives streams and threads their ordinals, in order of first appearance.
// It is fed by the writer thread alone, so that callers pay for none of this. Not thread-safe.
//
// An address cannot belong to two live blocks: when it comes back without a free (the program freed it where the
// recorder did not see it), the old block's free is written first. A free or use of an address that is not live
// (allocated before the recorder came) cannot be written at all. Both are counted.
//
// While it waits for a kBegin it keeps what is live, and no rows; there the blocks become the trace's first rows.
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_set>
#include <vector>

#include "allocator/base/open_table.h"
#include "allocator/record/event_ring.h"
#include "allocator/record/live_before.h"
#include "proto/codec/trace_chunk_writer.h"

namespace stalloc {

class TraceAssembler {
 public:
  explicit TraceAssembler(bool waits) : before_(waits ? std::make_unique<LiveBefore>() : nullptr) {}

  // Adds what `event` stands for to the chunk. `mark`: the mark of a kMark event, else null; it is moved from.
  void Add(const RecordedEvent& event, Mark* mark);

  // The rows since the last TakeAll, and what goes with them.
  [[nodiscard]] TraceChunk& chunk() { return chunk_; }

  // Frees and uses of unknown addresses, and frees that were made up.
  [[nodiscard]] std::uint64_t unpaired() const { return unpaired_; }

 private:
  struct Live {
    std::uint64_t allocation;
    DeviceIndex device;
    std::uint32_t used_by = 0;  // of its last use: the operation
    std::uint64_t used_at = 0;  // and the rows before it; 0: none
    std::int64_t time_ns = 0;   // of its allocation
    std::uint64_t row = 0;      // the same
  };

  void AddAllocation(const RecordedEvent& event);
  void AddFree(const RecordedEvent& event);
  void AddStreamUse(const RecordedEvent& event);
  void AddTensor(const RecordedEvent& event);
  void AddUse(const RecordedEvent& event);
  void AddLayerInput(const RecordedEvent& event);
  void AppendUse(Live& block, std::uint64_t at, std::uint32_t operation);
  void Begin(const RecordedEvent& event);
  void AppendRow(const RecordedEvent& event, EventKind kind, std::uint64_t subject, std::uint64_t value,
                 std::uint32_t stream);
  [[nodiscard]] std::uint64_t rows() const { return chunk_.first_event + chunk_.rows(); }
  [[nodiscard]] std::uint32_t StreamOrdinal(DeviceIndex device, StreamHandle handle);
  [[nodiscard]] std::uint32_t ThreadOrdinal(std::uint32_t token);

  std::unique_ptr<LiveBefore> before_;  // null: rows are taken
  TraceChunk chunk_;
  OpenTable<Live> live_{1u << 15};           // by address
  OpenTable<std::uint32_t> threads_{64};     // ordinal by token
  std::vector<StreamInfo> streams_;          // few: searched from front to back
  std::unordered_set<std::uint64_t> named_;  // allocation and name of what is in the file already
  std::uint64_t allocations_ = 0;
  std::uint64_t marks_ = 0;
  std::uint64_t unpaired_ = 0;
  std::int64_t time_ns_ = 0;
  bool started_ = false;
};

}  // namespace stalloc
