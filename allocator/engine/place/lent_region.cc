#include "allocator/engine/place/lent_region.h"

#include <atomic>

namespace stalloc {

std::uint32_t LentRegion::ThisThread() noexcept {
  static std::atomic<std::uint32_t> last{0};
  static thread_local const std::uint32_t number = ++last;
  return number;
}

}  // namespace stalloc
