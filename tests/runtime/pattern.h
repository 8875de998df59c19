// Keyed bytes in a block: whoever else writes there is found out.
#pragma once

#include <cstdint>
#include <cstring>

#include "proto/model/units.h"

namespace stalloc {

inline void FillPattern(void* pointer, Bytes bytes, std::uint8_t key) { std::memset(pointer, key, bytes); }

[[nodiscard]] inline bool HasPattern(const void* pointer, Bytes bytes, std::uint8_t key) {
  const auto* const at = static_cast<const std::uint8_t*>(pointer);
  return bytes == 0 || (at[0] == key && std::memcmp(at, at + 1, bytes - 1) == 0);
}

}  // namespace stalloc
