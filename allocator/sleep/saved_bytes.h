// SavedBytes: where in the host's pool the bytes of an arena are while their blocks sleep.
//
// Disjoint ranges of the arena, each with its place at the host. Not thread-safe. Bytes.
#pragma once

#include <map>
#include <span>
#include <vector>

#include "allocator/arena/arena.h"
#include "allocator/sleep/host_pool.h"

namespace stalloc {

using Ranges = std::vector<Arena::Range>;  // ascending, disjoint

[[nodiscard]] inline Offset EndOf(const Arena::Range& range) noexcept { return range.offset + range.bytes; }
// Sorted, with those that touch joined. REQUIRES: disjoint.
[[nodiscard]] Ranges Joined(Ranges ranges);
// What is in both.
[[nodiscard]] Ranges Common(std::span<const Arena::Range> a, std::span<const Arena::Range> b);
// What is in `ranges` and in none of `others`.
[[nodiscard]] Ranges Without(std::span<const Arena::Range> ranges, std::span<const Arena::Range> others);
[[nodiscard]] Bytes SumOf(std::span<const Arena::Range> ranges) noexcept;

class SavedBytes {
 public:
  struct Part {
    Arena::Range range;
    std::byte* at = nullptr;  // at the host
  };

  // Places for the ranges, one after the other in the pieces, which are as many bytes. REQUIRES: none is here yet.
  void Add(std::span<const Arena::Range> ranges, std::span<const HostPool::Piece> pieces);
  // The parts of the ranges that are here, ascending.
  [[nodiscard]] std::vector<Part> In(std::span<const Arena::Range> ranges) const;
  // Forgets what is in the ranges, or all but that; the pool gets its memory again.
  void Drop(std::span<const Arena::Range> ranges, HostPool& pool);
  void KeepOnly(std::span<const Arena::Range> ranges, HostPool& pool);

  [[nodiscard]] Bytes bytes() const noexcept { return bytes_; }

 private:
  struct Place {
    Bytes bytes = 0;
    std::byte* at = nullptr;
  };
  void Cut(const Part& part);

  std::map<Offset, Place> places_;
  Bytes bytes_ = 0;
};

}  // namespace stalloc
