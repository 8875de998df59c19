// AddressCover: which addresses are taken now, how many are free, and how long the longest free run is.
//
// A segment tree over the strips between given boundaries. A node that is covered whole counts how often; the others
// know their free bytes and the free runs at their ends. Each change is O(log n). Ranges may overlap each other. Not
// thread-safe. Bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "proto/model/units.h"

namespace stalloc::planner {

class AddressCover {
 public:
  // `boundaries` need not be sorted or distinct. All is free between the least and the greatest.
  explicit AddressCover(std::vector<Offset> boundaries);

  // REQUIRES: begin < end, both of them boundaries; Remove takes back an Add of the same range.
  void Add(Offset begin, Offset end) { Change(begin, end, 1); }
  void Remove(Offset begin, Offset end) { Change(begin, end, -1); }

  [[nodiscard]] Bytes free_bytes() const { return nodes_[1].free; }
  [[nodiscard]] Bytes longest_free() const { return nodes_[1].longest; }

 private:
  struct Node {
    Bytes length = 0;
    Bytes free = 0;
    Bytes left = 0;   // free run at the lower end
    Bytes right = 0;  // free run at the upper end
    Bytes longest = 0;
    std::int32_t covers = 0;  // of ranges for which the node is canonical
  };

  void Change(Offset begin, Offset end, std::int32_t by);
  void Update(std::size_t node);
  [[nodiscard]] std::size_t StripAt(Offset boundary) const;

  std::vector<Offset> boundaries_;
  std::size_t leaves_;  // a power of two; strip s is node leaves_ + s
  std::vector<Node> nodes_;
};

}  // namespace stalloc::planner
