// The numbers of an arena's memory (README).
#pragma once

#include <cstddef>
#include <cstdint>

#include "proto/model/units.h"

namespace stalloc::tuning {

// Of an arena, such a part is a chunk (a power of two of bytes).
inline constexpr Bytes kFineParts = 8192;               // as it grows: what idles in parts of chunks is lost to others
inline constexpr Bytes kFinestParts = 65536;            // of a device, where no plan says how high the arena will be
inline constexpr Bytes kRestingParts = 1024;            // under what never moves: few handles for who maps them
inline constexpr Bytes kMovedBytes = Bytes{4} << 20;    // so large at least where sizes vary: a move costs by the chunk
inline constexpr Bytes kCoarseParts = 512;              // where the device has plenty left: a call costs by the chunk
inline constexpr Bytes kCoarseBytes = Bytes{32} << 20;  // but no larger for that
inline constexpr Bytes kPlentyParts = 2;                // plenty is such a part of the arena

// A card is free while it has so much left (README, A free card and a full one): the larger of the two.
inline constexpr Bytes kKeptFreeBytes = Bytes{1} << 30;
inline constexpr Bytes kKeptFreeParts = 50;               // of the device
inline constexpr Bytes kDriversBytes = Bytes{512} << 20;  // a full card keeps so much for kernels that are loaded late,
inline constexpr Bytes kDriversParts = 256;               // or such a part, as long as the run goes on without it
inline constexpr Bytes kStepParts = 8;                    // of what may be taken, before the device is queried again
inline constexpr double kLeastGrowth = 1.05;       // of the live peak, up to which an arena grows before it reuses
inline constexpr double kMostOverOthers = 1.02;    // but of what expandable_segments would hold not more than that
inline constexpr std::size_t kIdleIterations = 8;  // what they left idle above that goes back
inline constexpr std::size_t kSettlingIterations = 4 * kIdleIterations;  // of a card that was full
inline constexpr std::int64_t kMovingParts = 2000;                       // of the time is for moves on a free card
inline constexpr Bytes kNearParts = 64;             // of the live peak: so near its bound an arena may have to move
inline constexpr std::size_t kReleasedAtOnce = 16;  // chunks, at the begin of an iteration
inline constexpr std::size_t kMovedAtMarks = 16;    // chunks, in tests that move memory at every mark
inline constexpr std::uint32_t kMarksBehind = 32;   // that a device lags; of more the oldest events are dropped

}  // namespace stalloc::tuning
