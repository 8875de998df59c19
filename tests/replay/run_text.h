// Runs as text, for tests: "+0=4096 ~0@1 -0 I0 (eval )".
#pragma once

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "bench/replay/runs.h"

namespace stalloc::bench {

// Blocks by their numbers in the run. Iterations with their numbers, "?" where automatic; other marks by kind.
[[nodiscard]] inline std::string MarkText(const Mark& mark) {
  switch (mark.kind) {
    case MarkKind::kIteration:
      return absl::StrCat("I", mark.index, mark.automatic ? "?" : "");
    case MarkKind::kFence:
      return mark.edge == MarkEdge::kBegin ? absl::StrCat("(", mark.name) : ")";
    default:
      return MarkKindName(mark.kind);
  }
}

[[nodiscard]] inline std::string StepText(const ComposedRun& run, const Step& step) {
  switch (step.kind) {
    case StepKind::kAllocate: {
      const Block& block = run.blocks[step.index];
      const std::string text = absl::StrCat("+", step.index, "=", block.requested);
      return block.stream == 0 ? text : absl::StrCat(text, "@", block.stream);
    }
    case StepKind::kFree:
      return absl::StrCat("-", step.index);
    case StepKind::kUse:
      return absl::StrCat("~", step.index, "@", step.stream);
    case StepKind::kMark:
      break;
  }
  return MarkText(run.marks[step.index]);
}

[[nodiscard]] inline std::string TextOf(const ComposedRun& run) {
  return absl::StrJoin(run.steps, " ", [&](std::string* out, const Step& step) { *out += StepText(run, step); });
}

[[nodiscard]] inline std::vector<const Piece*> Pieces(const Recording& recording, std::vector<std::size_t> numbers) {
  std::vector<const Piece*> pieces;
  for (const std::size_t number : numbers) pieces.push_back(&recording.iterations[number]);
  return pieces;
}

}  // namespace stalloc::bench
