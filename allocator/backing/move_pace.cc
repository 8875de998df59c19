#include "allocator/backing/move_pace.h"

namespace stalloc {

bool MovePace::Add(std::uint64_t request, std::size_t chunks) noexcept {
  const std::uint64_t iteration = request / requests_;
  if (iteration != iteration_) {
    busy_ = iteration == iteration_ + 1 && chunks_ > kMany ? busy_ + 1 : 0;
    iteration_ = iteration;
    chunks_ = 0;
    moves_ = 0;
  }
  ++moves_;
  chunks_ += chunks;
  if (busy_ + 1 < kIterations || chunks_ <= kMany) return false;
  busy_ = 0;
  chunks_ = 0;
  return true;
}

}  // namespace stalloc
