// Which layer of the model a run is in at each event: the innermost layer mark that is open.
//
// A layer ends at its end mark, with those that began inside it, and at the latest where an iteration, a micro-batch or
// the optimizer begins or ends, so that marks without an end (plain calls) do not reach into the next pass. Marks
// inside fences do not count. Pure.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "planner/analysis/segments.h"

namespace stalloc::planner {

// Edges are nested: each end closes the last begin that is open.
struct LayerEdge {
  std::uint64_t event = 0;
  std::uint32_t name = 0;  // index into LayerMap::names
  Pass pass = Pass::kNone;
  bool begin = false;
  // For the end of a forward pass: 1 + the units of 512 bytes of its output that its own backward pass keeps; -1: there
  // are no gradients; 0: not known.
  std::int32_t index = 0;
  std::int32_t inputs = 0;  // of the same: 0, kLayerInputsTold or kLayerCachesTold
};

class LayerMap {
 public:
  LayerMap(const Segmentation& segmentation, const std::vector<Mark>& marks);

  // The first is empty: outside of any layer.
  [[nodiscard]] const std::vector<std::string>& names() const { return names_; }
  [[nodiscard]] const std::vector<LayerEdge>& edges() const { return edges_; }  // ascending
  // Index into names(), where a name that no mark has is added.
  [[nodiscard]] std::uint32_t Name(std::string_view layer);
  // Index into names() of the layer that holds the event.
  [[nodiscard]] std::uint32_t At(std::uint64_t event) const;

 private:
  void Open(std::uint64_t event, std::uint32_t name, Pass pass);
  // `end`: the mark of the outermost one; null: it has none.
  void CloseDownTo(std::size_t depth, std::uint64_t event, const Mark* end = nullptr);

  struct Span {
    std::uint64_t begin_event = 0;
    std::uint32_t name = 0;
  };
  std::vector<std::string> names_;
  std::map<std::string, std::uint32_t, std::less<>> index_;  // into names_
  std::vector<LayerEdge> edges_;
  std::vector<LayerEdge> open_;
  std::vector<Span> spans_;  // ascending, never empty
};

}  // namespace stalloc::planner
