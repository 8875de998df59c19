// Granules: the unit of offsets and lengths in the engine, kBlockAlignment bytes. Whole ones only, here.
#pragma once

#include <cstdint>

#include "proto/model/units.h"

namespace stalloc {

// REQUIRES: a multiple of kBlockAlignment, up to 2 TiB.
[[nodiscard]] constexpr std::uint32_t ToGranule(Bytes bytes) noexcept {
  return static_cast<std::uint32_t>(bytes / kBlockAlignment);
}

}  // namespace stalloc
