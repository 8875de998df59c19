#include "planner/analysis/warnings.h"

#include "absl/strings/str_cat.h"

namespace stalloc::planner {

MarkFindings MissingMarks(const MarkCensus& census) {
  MarkFindings findings;
  if (census.by_period > 0) {
    findings.warnings.push_back(
        absl::StrCat("no iteration marks: the period of the requests shows ", census.by_period,
                     " iterations; a run follows its plan from mark to mark, so call stalloc.iteration() at the top of "
                     "the training loop"));
  } else if (census.iterations == 0) {
    findings.warnings.push_back(
        "no iteration marks: nothing can be planned (call stalloc.iteration() at the top of the training loop, or step "
        "a torch optimizer at least twice so that its hook places them)");
  } else if (census.automatic_iterations == census.iterations) {
    findings.notes.push_back(
        "no iteration marks of the script's own, only those of optimizer steps: what runs before the first step counts "
        "as set-up, and gradient accumulation with several optimizers makes one period of several marks");
  }
  if (census.microbatches == 0) {
    findings.notes.push_back(
        "no micro-batch marks: after an unexpected request the run finds back into its plan by sizes alone, not at the "
        "next micro-batch (matters for pipelines and for runs that diverge)");
  }
  if (census.layers == 0) {
    findings.notes.push_back(
        "no layer marks: fine for dense models; mixture-of-experts models are distinguished by sizes alone");
  }
  if (census.ignored_automatic > 0) {
    findings.notes.push_back(
        absl::StrCat("automatic marks ignored since the script places its own: ", census.ignored_automatic));
  }
  return findings;
}

}  // namespace stalloc::planner
