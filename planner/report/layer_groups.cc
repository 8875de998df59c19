#include "planner/report/layer_groups.h"

#include <algorithm>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "planner/report/largest_keys.h"

namespace stalloc::planner {
namespace {

// Bytes of layers and of kinds of layers, each with what is inside it.
class LayerSums {
 public:
  LayerSums(const std::vector<std::string>& names, const std::map<std::uint32_t, Bytes>& at_peak)
      : names_(names), known_(names.begin(), names.end()) {
    for (const auto& [layer, bytes] : at_peak) {
      all_ += bytes;
      ForAncestors(layer, [&](const std::string& path) {
        singles_[path] += bytes;
        if (const std::string pattern = LayerPattern(path); pattern != path) patterns_[pattern] += bytes;
      });
    }
    // A layer that holds all others is no choice.
    std::erase_if(singles_, [&](const auto& single) { return single.second == all_ && at_peak.size() > 1; });
  }

  [[nodiscard]] std::vector<LayerGroup> Largest(std::size_t most_patterns, std::size_t most_layers) const {
    std::vector<LayerGroup> found;
    for (const std::string& path : LargestKeys(patterns_, most_patterns)) found.push_back(Group(path, true));
    for (const std::string& path : LargestKeys(singles_, most_layers)) found.push_back(Group(path, false));
    return found;
  }

 private:
  // Of the layers that hold `layer`, and itself.
  template <typename Call>
  void ForAncestors(std::uint32_t layer, const Call& call) const {
    const std::string& name = names_[layer];
    for (std::size_t end = name.find('.');; end = name.find('.', end + 1)) {
      if (const std::string path = name.substr(0, end); known_.count(path) > 0) call(path);
      if (end == std::string::npos) return;
    }
  }

  [[nodiscard]] LayerGroup Group(const std::string& name, bool pattern) const {
    LayerGroup group{name, std::vector<bool>(names_.size())};
    for (std::uint32_t layer = 1; layer < names_.size(); ++layer) {
      ForAncestors(layer, [&](const std::string& path) {
        if ((pattern ? LayerPattern(path) : path) == name) group.member[layer] = true;
      });
    }
    return group;
  }

  const std::vector<std::string>& names_;
  const std::set<std::string> known_;
  std::map<std::string, Bytes> singles_;
  std::map<std::string, Bytes> patterns_;
  Bytes all_ = 0;
};

}  // namespace

std::string LayerPattern(absl::string_view path) {
  return absl::StrJoin(absl::StrSplit(path, '.'), ".", [](std::string* out, absl::string_view part) {
    const bool number = !part.empty() && std::all_of(part.begin(), part.end(), absl::ascii_isdigit);
    absl::StrAppend(out, number ? "*" : part);
  });
}

std::vector<LayerGroup> FindLayerGroups(const std::vector<std::string>& names,
                                        const std::map<std::uint32_t, Bytes>& bytes, std::size_t most_patterns,
                                        std::size_t most_layers) {
  return LayerSums(names, bytes).Largest(most_patterns, most_layers);
}

}  // namespace stalloc::planner
