// What the alignment of a live run to its script scores and pays. Only ratios matter.
//
// A match scores the information in it, three points a bit: an entry of a size that one entry in 64 has scores 18, a
// very common size next to nothing. The prices stand for the odds of what they explain. Found by replaying the recorded
// runs with edits (tests/engine/matcher_corpus_test.cc holds the result); between half and twice these prices little
// changes.
#pragma once

#include <cstdint>

namespace stalloc::alignment {

inline constexpr double kPointsPerBit = 3;
inline constexpr std::int32_t kMaxWorth = 30;     // of one match
inline constexpr std::int32_t kMinWorth = 2;      // of an exact match
inline constexpr std::int32_t kMinWeak = 1;       // of a weak match
inline constexpr std::int32_t kStretch = 2;       // a size that is far from what was seen of an entry that varies
inline constexpr std::int32_t kInsert = 12;       // a request that the script does not have
inline constexpr std::int32_t kSkip = 12;         // an entry that the run left out
inline constexpr std::int32_t kSkipOptional = 4;  // an entry that some traced iterations left out, too
inline constexpr std::int32_t kSubstitute = 14;   // the entry, with another size
inline constexpr std::int32_t kClearlyAhead = 4;  // lead over every other hypothesis that counts as certain
inline constexpr std::int32_t kSureLeap = 9;      // lead at which a hypothesis that leaves entries out serves requests
inline constexpr std::int32_t kSureRun = 8;       // matches in a row that count as certain, with that lead
inline constexpr std::int32_t kLongRun = 24;      // matches in a row that count as certain without

}  // namespace stalloc::alignment
