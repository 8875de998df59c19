#include "planner/facts/layer_pattern.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace stalloc::planner {

std::string LayerPattern(absl::string_view path) {
  return absl::StrJoin(absl::StrSplit(path, '.'), ".", [](std::string* out, absl::string_view part) {
    const bool number = !part.empty() && std::all_of(part.begin(), part.end(), absl::ascii_isdigit);
    absl::StrAppend(out, number ? "*" : part);
  });
}

}  // namespace stalloc::planner
