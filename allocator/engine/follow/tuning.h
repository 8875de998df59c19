// The numbers by which a run is followed, each with what it bounds or is worth (details.md, Matching).
//
// What the alignment scores and pays: only ratios matter. A match scores the information in it; the prices stand for
// the odds of what they explain. Between half and twice these little changes (matcher_corpus_test.cc).
#pragma once

#include <cstdint>

namespace stalloc::tuning {

inline constexpr double kPointsPerBit = 3;        // an entry of a size that one entry in 64 has scores 18
inline constexpr std::int32_t kMaxWorth = 30;     // of one match
inline constexpr std::int32_t kMinWorth = 2;      // of an exact match
inline constexpr std::int32_t kMinWeak = 1;       // of a weak match
inline constexpr std::int32_t kStretch = 2;       // a size that is far from what was seen of an entry that varies
inline constexpr std::int32_t kInsert = 12;       // a request that the script does not have
inline constexpr std::int32_t kSkip = 12;         // an entry that the run left out
inline constexpr std::int32_t kSkipOptional = 4;  // an entry that some traced iterations left out, too
inline constexpr std::int32_t kSubstitute = 14;   // the entry, with another size
inline constexpr std::int32_t kBehindOpen = 10;   // having been ahead all the time, by requests that were extra and ...
inline constexpr std::int32_t kBehindStep = 12;   // ... matched by chance: by d entries, d of these more

// When the alignment is believed.
inline constexpr std::int32_t kClearlyAhead = 4;  // lead over every other hypothesis that counts as certain
inline constexpr std::int32_t kSureLeap = 9;      // lead at which a hypothesis that leaves entries out serves requests
inline constexpr std::int32_t kSureRun = 8;       // matches in a row that count as certain, with that lead
inline constexpr std::int32_t kLongRun = 24;      // matches in a row that count as certain without

// The band of hypotheses, in entries. A request out of sync costs time by its width.
inline constexpr std::int32_t kBandWidth = 64;
inline constexpr std::int32_t kBandCentre = 28;  // where the best hypothesis is kept, so that both sides have space
inline constexpr std::int32_t kBandSlack = 12;   // how far it may wander before the band moves

// Sizes.
inline constexpr std::uint32_t kWeakMargin = 4;  // sizes of an entry that varies are near up to so many times its range
inline constexpr std::uint32_t kFarMargin = 16;  // beyond so many times that, what comes next decides, too
inline constexpr double kMaxChanceHits = 0.05;   // of a size, by entries that vary, per fixed one: more, and no anchor
inline constexpr std::uint32_t kAnchorsOfPlace = 8;  // in a row that name a place in the script

// Requests that are remembered: bounds on memory, and on what one request may have to wait for.
inline constexpr std::uint32_t kDoubtful = 64;     // since the last exact match in sync
inline constexpr std::uint32_t kNotAligned = 8;    // of these, the last ones, until sync is lost: 0.2 us each then
inline constexpr std::uint32_t kLastAnchors = 64;  // since sync was lost

// When the place is lost, and which one is gone to.
inline constexpr std::uint32_t kPatience = 12;     // requests out of sync before anchors are looked up
inline constexpr std::uint32_t kJudged = 0xffff;   // bits: the requests out of sync that are judged, the last 16 ...
inline constexpr int kFewExplained = 8;            // ... of which so few are explained when the place is lost
inline constexpr std::int32_t kWayHome = 36;       // worth of requests in a row that come as from home on
inline constexpr std::int32_t kExcursion = 512;    // entries after which a place found by its anchors becomes home
inline constexpr std::int32_t kHomeSlack = 3;      // entries that the last disturbance may have eaten
inline constexpr std::int32_t kHomeBonus = 6;      // anchors of common history that coming home is worth
inline constexpr std::int32_t kNearPlace = 64;     // entries; each doubling of the distance beyond them ...
inline constexpr std::int32_t kFartherPlace = 12;  // ... takes so many anchors of common history to make up for

}  // namespace stalloc::tuning
