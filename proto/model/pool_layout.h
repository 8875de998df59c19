// Where the blocks of a graphs' pool lie relative to each other. The same program's pool has the same layout in each
// start, at other addresses: planner and allocator compare layouts by their hashes. Pure. Bytes.
//
//   extent 0, at its address   |== block ==|..|= block =|......|      blocks of one segment; the next segment is
//   extent 1                   |= block =|...|== block ==|....|       farther away than kExtentGap
//   layout                     [0 ------ extent 0 ------)[------ extent 1 ------)   in the order of first requests
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "proto/model/units.h"

namespace stalloc {

// A request of the pool. Its address is a number; 0: not known.
struct PoolBlock {
  std::uint64_t address = 0;
  Bytes bytes = 0;  // rounded up to kBlockAlignment

  bool operator==(const PoolBlock&) const = default;
};

class PoolLayout {
 public:
  // PyTorch's expandable segments reserve more addresses than the device has bytes, and are backed from their begin, in
  // handles of 2 or 20 MiB: an extent begins where a segment does, and is a multiple of both.
  static constexpr Bytes kExtentGap = Bytes{1} << 30;
  static constexpr Bytes kExtentUnit = Bytes{20} << 20;

  PoolLayout() = default;
  // For all requests of the pool so far, in their order. A block of unknown address: there is no layout (empty()).
  explicit PoolLayout(std::span<const PoolBlock> requests);

  struct Extent {
    std::uint64_t address = 0;
    Bytes bytes = 0;    // a multiple of kExtentUnit
    Offset offset = 0;  // in the layout
  };
  [[nodiscard]] std::span<const Extent> extents() const { return extents_; }
  [[nodiscard]] Bytes bytes() const { return bytes_; }  // of all extents
  [[nodiscard]] bool empty() const { return extents_.empty(); }
  // None: in no extent.
  [[nodiscard]] std::optional<Offset> OffsetOf(std::uint64_t address) const;
  // For sizes and offsets of the requests, in their order.
  [[nodiscard]] std::uint64_t hash() const { return hash_; }

 private:
  std::vector<Extent> extents_;  // in the order of their first requests
  Bytes bytes_ = 0;
  std::uint64_t hash_ = 0;
};

// Where the pieces of kExtentUnit of a layout lie, by their number, if some lie before all others, which keep their
// order. REQUIRES: `first` are different numbers below `pieces`.
[[nodiscard]] std::vector<Offset> PieceOffsets(std::size_t pieces, std::span<const std::uint32_t> first);

}  // namespace stalloc
