// The numbers of the memory behind an arena (README).
#pragma once

#include <cstddef>
#include <cstdint>

#include "proto/model/units.h"

namespace stalloc::tuning {

// Of an arena, such a part is a chunk (a power of two of bytes).
inline constexpr Bytes kFineParts = 8192;             // as it grows: what idles in parts of chunks is lost to others
inline constexpr Bytes kFinestParts = 65536;          // of a device, where no plan says how high the arena will be
inline constexpr Bytes kRestingParts = 1024;          // under what never moves: few handles for who maps them
inline constexpr Bytes kMovedParts = 2048;            // what moves: a move costs by the chunk, idle memory by its size
inline constexpr Bytes kMovedBytes = Bytes{8} << 20;  // but so large at least where sizes vary and moves are many

inline constexpr std::size_t kManyMoved = 128;  // chunks, of 48 to 71 us each (bench/driver): 6 to 9 ms ...
inline constexpr int kBusyIterations = 3;       // ... in so many iterations in a row: chunks grow (rule larger-chunks)
inline constexpr int kMostMoves = 256;          // in an iteration; each may have to wait for the device
inline constexpr std::uint64_t kSoonParts = 8;  // who needs a chunk within such a part of the cycle needs it soon
inline constexpr Bytes kLeastWorth = 512;       // for less than such a part of the arena nobody waits for the device
// Of the time since the plan was taken up, waits for the device may take such a part. Beyond that the arena grows ...
inline constexpr std::int64_t kWaitingParts = 64;
inline constexpr std::int64_t kLeastWaited = 100'000'000;  // nanoseconds; less in all is not worth memory
inline constexpr Bytes kMoreParts = 32;                    // ... by such a part of what lived in it at a time at most,
inline constexpr Bytes kLeftParts = 128;                   // and leaves such a part of the device to others
inline constexpr std::size_t kMovedAtMarks = 16;           // chunks, in tests that move memory at every mark
inline constexpr std::uint32_t kMarksBehind = 32;          // that a device lags; of more the oldest events are dropped

}  // namespace stalloc::tuning
