// FailedParts: what a capacity search has proved not to fit, so that it is not searched again when other placements
// lead to it once more.
//
// A part is known by two independent 64-bit hashes of its blocks and the space left to each; that two parts share both
// is taken not to happen. A table of fixed size in which a newer entry replaces an older one. Not thread-safe. Bytes.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "proto/model/units.h"

namespace stalloc::planner {

struct PartHash {
  std::uint64_t first = 0;
  std::uint64_t second = 0;

  // Independent of the order in which blocks are added.
  void Add(std::uint64_t block, std::uint64_t state) {
    std::uint64_t x = block * 0x9E3779B97F4A7C15u + state * 0xD1B54A32D192ED03u + 0x8CB92BA72F3D8DD7u;
    x = (x ^ x >> 32) * 0xD6E8FEB86659FD93u;
    x ^= x >> 29;
    first += x * 0xBF58476D1CE4E5B9u ^ x >> 31;
    second += (x ^ 0x2545F4914F6CDD1Du) * 0x94D049BB133111EBu ^ x << 17;
  }
};

class FailedParts {
 public:
  // For so many blocks; 6 MiB at most.
  explicit FailedParts(std::size_t blocks)
      : slots_(std::bit_ceil(std::clamp(512 * blocks, std::size_t{1} << 10, std::size_t{1} << 18))) {}

  // The part fails if nothing in it may be placed below `floor`, hence also from any higher floor.
  void Add(const PartHash& part, Offset floor) { slots_[part.first & (slots_.size() - 1)] = {part, floor}; }
  [[nodiscard]] bool Has(const PartHash& part, Offset floor) const {
    const Slot& slot = slots_[part.first & (slots_.size() - 1)];
    return slot.part.first == part.first && slot.part.second == part.second && slot.floor <= floor;
  }
  void Clear() { std::fill(slots_.begin(), slots_.end(), Slot{}); }

 private:
  struct Slot {
    PartHash part;
    Offset floor = 0;
  };

  std::vector<Slot> slots_;
};

}  // namespace stalloc::planner
