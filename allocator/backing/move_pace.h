// MovePace: tells a run that moves chunks in every iteration from one that finds its places and is done, and bounds the
// time that one iteration can lose to moves.
#pragma once

#include <cstddef>
#include <cstdint>

namespace stalloc {

// Counts by iterations of as many requests as a planned one has. Not thread-safe.
class MovePace {
 public:
  // Chunks, of 48 to 71 us each (bench/driver): 25 to 36 ms of an iteration.
  static constexpr std::size_t kMany = 512;
  static constexpr int kIterations = 3;
  static constexpr int kMostMoves = 256;  // in an iteration; each may have to wait for the device

  // `requests`: of a planned iteration.
  explicit MovePace(std::uint64_t requests) noexcept : requests_(requests > 0 ? requests : 1) {}

  // Whether the iteration of this request of the run may have one more move.
  [[nodiscard]] bool MayMove(std::uint64_t request) const noexcept {
    return request / requests_ != iteration_ || moves_ < kMostMoves;
  }
  // So many chunks were moved at a request of the run. True in the third iteration in a row with more than kMany; from
  // then on they are counted anew.
  [[nodiscard]] bool Add(std::uint64_t request, std::size_t chunks) noexcept;

 private:
  const std::uint64_t requests_;
  std::uint64_t iteration_ = 0;  // the latest one in which chunks moved
  std::size_t chunks_ = 0;       // that did
  int moves_ = 0;                // that they did so in
  int busy_ = 0;                 // iterations before it, in a row
};

}  // namespace stalloc
