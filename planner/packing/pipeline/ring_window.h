// RingWindow: one revolution of a ring, cut out of time.
//
// A revolution is what the ring lays down from its bottom until it closes below the ceiling. The window has all that
// decides how it comes out, with positions counted from the window's own beginning, so that windows which look alike at
// different times are equal. Values. Bytes.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "planner/packing/problem/instance.h"

namespace stalloc::planner {

struct RingWindow {
  static constexpr std::uint32_t kNoPosition = ~std::uint32_t{0};
  // A revolution draws a block forward over at most so many.
  static constexpr std::size_t kLookAhead = 64;

  struct Obstacle {  // a block of an earlier revolution
    Span span;
    Offset begin = 0;
    Offset end = 0;
    bool operator==(const Obstacle&) const = default;
  };
  struct Piece {  // a block without a place
    Bytes bytes = 0;
    Bytes alignment = 1;
    Span span;
    bool operator==(const Piece&) const = default;
  };

  std::vector<Obstacle> obstacles;
  std::vector<Piece> longs;   // those that may go next, by end: more than fit in
  std::vector<Piece> shorts;  // those that end before `later`, greatest area first
  // Where the first long block beyond `longs` begins; kNoPosition: there is none.
  std::uint32_t later = kNoPosition;

  // Positions are below it; at least 1.
  [[nodiscard]] std::uint32_t positions() const {
    std::uint32_t positions = 1;
    for (const Obstacle& obstacle : obstacles) positions = std::max(positions, obstacle.span.end);
    for (const Piece& piece : longs) positions = std::max(positions, piece.span.end);
    for (const Piece& piece : shorts) positions = std::max(positions, piece.span.end);
    return positions;
  }
  bool operator==(const RingWindow&) const = default;
};

template <typename H>
H AbslHashValue(H h, const RingWindow& window) {
  for (const RingWindow::Obstacle& o : window.obstacles) {
    h = H::combine(std::move(h), o.span.begin, o.span.end, o.begin, o.end);
  }
  for (const std::vector<RingWindow::Piece>* pieces : {&window.longs, &window.shorts}) {
    for (const RingWindow::Piece& p : *pieces) {
      h = H::combine(std::move(h), p.bytes, p.alignment, p.span.begin, p.span.end);
    }
    h = H::combine(std::move(h), pieces->size());
  }
  return H::combine(std::move(h), window.later);
}

// How a revolution begins and closes.
struct RingClosure {
  Bytes shift = 0;          // it begins so much above the bottom
  std::uint32_t early = 0;  // so many blocks that would fit below the ceiling go on at the bottom
  bool fill = true;         // what follows may take the rest below the ceiling, out of turn
};

struct Revolution {
  static constexpr Offset kNotYet = ~Offset{0};

  std::vector<Offset> longs;   // parallel to the window's; kNotYet: of the next revolution
  std::vector<Offset> shorts;  // parallel; kNotYet: alive when blocks of the next revolution may be
  std::uint32_t finished = 0;  // all that is alive before this position has a place

  bool operator==(const Revolution&) const = default;
};

}  // namespace stalloc::planner
