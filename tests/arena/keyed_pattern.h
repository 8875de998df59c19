// KeyedPattern: bytes that only one block can hold: every 64-bit word is a mix of the block's key and its place.
#pragma once

#include <cstdint>

#include "proto/model/units.h"

namespace stalloc {

inline std::uint64_t KeyedWord(std::uint64_t key, Bytes index) {
  std::uint64_t word = (key + 1) * 0x9E3779B97F4A7C15u + index * 0xBF58476D1CE4E5B9u;
  word ^= word >> 29;
  return word * 0x94D049BB133111EBu;
}

// REQUIRES: `bytes` is a multiple of 8.
inline void FillKeyed(void* block, Bytes bytes, std::uint64_t key) {
  auto* const words = static_cast<std::uint64_t*>(block);
  for (Bytes i = 0; i < bytes / 8; ++i) words[i] = KeyedWord(key, i);
}

inline bool HoldsKeyed(const void* block, Bytes bytes, std::uint64_t key) {
  const auto* const words = static_cast<const std::uint64_t*>(block);
  for (Bytes i = 0; i < bytes / 8; ++i) {
    if (words[i] != KeyedWord(key, i)) return false;
  }
  return true;
}

}  // namespace stalloc
