// The numbers of the search for space: bounds, since where there is more to look at there is slack.
#pragma once

#include <cstddef>
#include <cstdint>

namespace stalloc::tuning {

inline constexpr std::size_t kGapsOfEntry = 64;           // the largest ones; 64 are 0.3 us of a usual request
inline constexpr std::size_t kNeighbourhood = 256;        // entries to either side that show what varies: about a layer
inline constexpr std::uint32_t kTimesAsManyTokens = 64;   // that an expert may get which had few in the trace
inline constexpr std::uint32_t kNearOfSize = 512;         // entries to a side in which those of one size are looked for
inline constexpr int kMostOfSize = 24;                    // of that size
inline constexpr int kRangesCompared = 32;                // that are large enough; the tightest of them will do
inline constexpr std::size_t kBlocksWithoutSlot = 32768;  // ranges that they can lie in; more are upstream's
inline constexpr std::uint64_t kGoesEarlier = 8;   // a slot is lent to who stays up to such a part of its life longer
inline constexpr std::uint32_t kLeastLent = 2048;  // granules: 1 MiB; smaller ones without a slot stay out of pools
inline constexpr int kTriesForSpace = 64;          // each lost to a request of another thread

// Ranges for fences are those that no iteration uses in its first part: a 64th, ... a half. Each is a quarter longer
// than the one before, or less: what is left of a fence finds space that is idle for about as long as it can be.
inline constexpr std::size_t kSharesOfIteration = 256;
inline constexpr std::size_t kLateShares[] = {4,  5,  6,  7,  8,  10, 12, 14, 16,  20, 24,
                                              28, 32, 40, 48, 56, 64, 80, 96, 112, 128};

}  // namespace stalloc::tuning
