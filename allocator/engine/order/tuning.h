// Sizes of the tables of streams: what does not fit is a miss, or memory that is not used again, never an error.
#pragma once

#include <cstddef>
#include <cstdint>

namespace stalloc::tuning {

inline constexpr std::size_t kMostStreams = 128;       // torch has 65 a device; LiveRecord has a byte for each index
inline constexpr std::size_t kStreamsOfRequest = 16;   // to be waited for; more than any training run has
inline constexpr std::uint32_t kEventsOfStream = 256;  // of more the oldest are forgotten
inline constexpr std::uint32_t kQueriesOfStream = 8;   // in one poll, besides the newest event

}  // namespace stalloc::tuning
