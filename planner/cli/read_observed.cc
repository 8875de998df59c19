#include "planner/cli/read_observed.h"

#include <fstream>
#include <iterator>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "proto/codec/observed_text.h"

namespace stalloc::planner {

absl::StatusOr<Observed> ReadObserved(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    return absl::NotFoundError(
        absl::StrCat("cannot read ", path, ": --refine needs what a run with STALLOC_MODE=Alloc has left there"));
  }
  const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  Result<Observed> observed = DecodeObserved(text);
  if (!observed.ok()) return absl::InvalidArgumentError(absl::StrCat(path, ", ", observed.error()));
  return std::move(observed).value();
}

}  // namespace stalloc::planner
