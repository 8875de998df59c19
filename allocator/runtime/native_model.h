// NativeModel: what PyTorch's native caching allocator would hold of a device for the requests that it sees, by their
// addresses (proto/model/native_segments.h).
//
// Not thread-safe. Takes heap memory: some 150 bytes a block. Bytes.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>

#include "allocator/base/open_table.h"
#include "proto/model/native_segments.h"
#include "proto/model/units.h"

namespace stalloc {

class NativeModel {
 public:
  static constexpr std::size_t kMostBlocks = std::size_t{1} << 18;  // live; with more of them it ends

  // A block that is known is freed first. `bytes` > 0.
  void Allocate(std::uint64_t address, Bytes bytes, StreamHandle stream) {
    Free(address);
    overflowed_ = overflowed_ || live_.size() == kMostBlocks;
    if (overflowed_) return;
    bytes = BlockBytes(bytes);
    live_.Insert(address, segments_.Allocate(bytes, {.stream = stream, .small = bytes <= kSmallRequest}));
    peak_ = std::max(peak_, held_bytes());
  }
  // Nothing where it is not known.
  void Free(std::uint64_t address) {
    if (const std::optional<NativeSegments::BlockId> block = live_.Erase(address)) segments_.Free(*block);
  }
  // Segments in which nothing lives go back to the device.
  void EmptyCache() { segments_.EmptyCaches(); }

  [[nodiscard]] Bytes held_bytes() const noexcept { return segments_.held_bytes(); }
  // The most that was held since the last call.
  Bytes TakePeak() noexcept { return std::exchange(peak_, held_bytes()); }
  // More lived than it keeps: its figures say nothing any more.
  [[nodiscard]] bool overflowed() const noexcept { return overflowed_; }

 private:
  NativeSegments segments_;
  OpenTable<NativeSegments::BlockId> live_{1024};  // by address
  Bytes peak_ = 0;
  bool overflowed_ = false;
};

}  // namespace stalloc
