// Units that every layer shares.
#pragma once

#include <algorithm>
#include <cstdint>

namespace stalloc {

using Bytes = std::uint64_t;         // a count of bytes
using Offset = std::uint64_t;        // bytes from the base of an arena
using Tick = std::int64_t;           // position in a sequence of allocations and frees
using StreamHandle = std::uint64_t;  // cudaStream_t as a number; 0 is the default stream (and every CPU request)
using DeviceIndex = int;             // CUDA ordinal; kCpuDevice for host memory

inline constexpr DeviceIndex kCpuDevice = -1;

inline constexpr Bytes kKiB = Bytes{1} << 10;
inline constexpr Bytes kMiB = Bytes{1} << 20;
inline constexpr Bytes kGiB = Bytes{1} << 30;

// PyTorch rounds every request up to this; offsets and capacities of a plan are multiples of it.
inline constexpr Bytes kBlockAlignment = 512;

// The smallest multiple of `unit` that is >= `value`. REQUIRES: unit > 0 and no overflow.
[[nodiscard]] constexpr Bytes RoundUp(Bytes value, Bytes unit) { return (value + unit - 1) / unit * unit; }

// Size that a request occupies: at least one alignment unit, as PyTorch does.
[[nodiscard]] constexpr Bytes BlockBytes(Bytes requested) {
  return requested == 0 ? kBlockAlignment : RoundUp(requested, kBlockAlignment);
}

// Blocks of an arena that are smaller are many, and weigh next to nothing: up to a 4096th of it, and 256 KiB at most.
// Those that vary are not worth a search for space; those that have slots lie apart from the others, so that one that
// stays too long is not in the way of a large one. With 1 MiB (PyTorch's small) upstream's pool of a model with 16
// experts lay idle at the peak: 0.2 % of what was held.
[[nodiscard]] constexpr Bytes SmallBlockBytes(Bytes arena_bytes) {
  constexpr Bytes kMost = Bytes{256} << 10;
  constexpr Bytes kParts = 4096;
  return RoundUp(std::clamp<Bytes>(arena_bytes / kParts, 1, kMost), kBlockAlignment);
}

}  // namespace stalloc
