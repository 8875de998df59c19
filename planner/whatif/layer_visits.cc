#include "planner/whatif/layer_visits.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <string>
#include <utility>

namespace stalloc::planner {
namespace {

constexpr std::int64_t kUnit = 512;  // bytes; of the kept output in a mark's index

struct PassRange {
  std::uint64_t begin_event = 0;
  std::uint64_t end_event = 0;
  std::int64_t kept_bytes = kKeptUnknown;
  std::int32_t inputs = 0;
};

// For one layer in one micro-batch.
struct LayerPasses {
  std::vector<PassRange> forward;
  std::vector<PassRange> backward;
};

// "iter 3, F 0 chunk 1" and "iter 3, B 0 chunk 1" -> "iter 3, 0 chunk 1"; others stay.
std::string MicrobatchOf(const PhaseSpan& span) {
  if (span.kind != PhaseKind::kForward && span.kind != PhaseKind::kBackward) return std::to_string(span.segment);
  const std::size_t comma = span.name.find(", ");
  const std::size_t blank = comma == std::string::npos ? comma : span.name.find(' ', comma + 2);
  return blank == std::string::npos ? span.name : span.name.substr(0, comma + 1) + span.name.substr(blank);
}

class PassFinder {
 public:
  PassFinder(const LayerMap& layers, const PhaseMap& phases) : phases_(phases) {
    for (const LayerEdge& edge : layers.edges()) edge.begin ? Begin(edge) : End(edge);
  }

  [[nodiscard]] const std::map<std::pair<std::uint32_t, std::string>, LayerPasses>& found() const { return found_; }

 private:
  void Begin(const LayerEdge& edge) {
    open_.push_back(edge);
    if (edge.pass == Pass::kBackward) ++backward_open_;
  }

  void End(const LayerEdge& edge) {
    const LayerEdge begin = open_.back();  // edges are nested
    open_.pop_back();
    const bool is_backward = edge.pass == Pass::kBackward;
    if (is_backward) --backward_open_;
    if (!is_backward && (edge.pass != Pass::kForward || backward_open_ > 0 || edge.index < 0)) return;
    const PhaseSpan& span = phases_.spans()[phases_.At(begin.event)];
    if (span.kind == PhaseKind::kFence) return;
    PassRange range{begin.event, edge.event, kKeptUnknown, edge.inputs};
    if (!is_backward && edge.index > 0) range.kept_bytes = (edge.index - 1) * kUnit;
    LayerPasses& passes = found_[{edge.name, MicrobatchOf(span)}];
    (is_backward ? passes.backward : passes.forward).push_back(range);
  }

  const PhaseMap& phases_;
  int backward_open_ = 0;
  std::vector<LayerEdge> open_;
  std::map<std::pair<std::uint32_t, std::string>, LayerPasses> found_;
};

// Forward passes [first, last) with the backward passes that follow them before the next forward pass; false where
// numbers do not agree.
bool PairRun(std::uint32_t name, const std::vector<PassRange>& forward, std::size_t first, std::size_t last,
             const std::vector<PassRange>& backward, std::vector<LayerVisit>* visits) {
  const std::size_t count = last - first;
  if (backward.empty() || backward.size() % count != 0) return false;
  const std::size_t each = backward.size() / count;
  for (std::size_t i = 0; i < count; ++i) {
    const PassRange& one = forward[last - 1 - i];
    visits->push_back({name, one.begin_event, one.end_event, backward[i * each].begin_event,
                       backward[i * each + each - 1].end_event, one.kept_bytes, one.inputs});
  }
  return true;
}

void PairPasses(std::uint32_t name, const LayerPasses& passes, std::vector<LayerVisit>* visits) {
  std::vector<LayerVisit> found;
  std::size_t first = 0;
  auto next = passes.backward.begin();
  for (std::size_t i = 0; i < passes.forward.size(); ++i) {
    const bool is_last = i + 1 == passes.forward.size();
    std::vector<PassRange> run;
    while (next != passes.backward.end() && (is_last || next->begin_event < passes.forward[i + 1].begin_event)) {
      run.push_back(*next++);
    }
    if (run.empty() && !is_last) continue;
    if (!run.empty() && run.front().begin_event < passes.forward[i].end_event) return;
    if (!PairRun(name, passes.forward, first, i + 1, run, &found)) return;
    first = i + 1;
  }
  visits->insert(visits->end(), found.begin(), found.end());
}

}  // namespace

std::vector<LayerVisit> FindLayerVisits(const LayerMap& layers, const PhaseMap& phases) {
  std::vector<LayerVisit> visits;
  const PassFinder finder(layers, phases);
  for (const auto& [key, passes] : finder.found()) PairPasses(key.first, passes, &visits);
  std::sort(visits.begin(), visits.end(), [](const LayerVisit& a, const LayerVisit& b) {
    return a.forward_begin != b.forward_begin ? a.forward_begin < b.forward_begin : a.forward_end > b.forward_end;
  });
  return visits;
}

}  // namespace stalloc::planner
