#include "bench/plan_quality/contenders.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "bench/plan_quality/online_best_fit.h"
#include "planner/packing/portfolio.h"

namespace stalloc::planner {
namespace {

const std::vector<std::string> kDefaultNames = {"portfolio", "size_first_fit", "online_best_fit"};

std::vector<Contender> Everyone() {
  std::vector<Contender> everyone;
  for (std::unique_ptr<Solver>& solver : MakeAllSolvers()) everyone.push_back({.solver = std::move(solver)});
  everyone.push_back({.solver = MakeOnlineBestFit(), .by_clock = true});
  return everyone;
}

std::vector<std::string> NamesOf(const std::vector<Contender>& contenders) {
  std::vector<std::string> names;
  for (const Contender& contender : contenders) names.emplace_back(contender.solver->name());
  return names;
}

}  // namespace

absl::StatusOr<std::vector<Contender>> MakeContenders(const std::vector<std::string>& names) {
  std::vector<Contender> everyone = Everyone();
  if (names == std::vector<std::string>{"all"}) return everyone;
  std::vector<Contender> chosen;
  for (const std::string& name : names.empty() ? kDefaultNames : names) {
    const auto found = std::find_if(everyone.begin(), everyone.end(), [&](const Contender& contender) {
      return contender.solver != nullptr && contender.solver->name() == name;
    });
    if (found == everyone.end()) {
      return absl::InvalidArgumentError(absl::StrCat("--solver: expected names, each once, of all or ",
                                                     absl::StrJoin(NamesOf(Everyone()), ", "), "; found ", name));
    }
    chosen.push_back(std::move(*found));
  }
  return chosen;
}

}  // namespace stalloc::planner
