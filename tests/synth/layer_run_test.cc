// Orders of allocations and frees, written as text: +512 allocates so many bytes, -0 frees allocation 0.
#include "planner/synth/layer_run.h"

#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"

namespace stalloc::planner {
namespace {

std::string Text(Tape& tape) {
  std::string text;
  for (const TraceEvent& event : tape.Take().events) {
    const bool allocates = event.kind == EventKind::kAlloc;
    absl::StrAppend(&text, allocates ? "+" : "-", allocates ? event.bytes : event.allocation,
                    event.stream == 0 ? " " : "@ ");
  }
  return text;
}

// input -> A (keeps its output for B) -> B -> residual sum
Layer TwoOperations() {
  Layer layer{.name = "layer"};
  Branch branch{.residual = 512};
  branch.operations.push_back(
      {.scratch = {1024}, .saved = {1536}, .output = 2048, .keep = Keep::kForNextBackward, .input_gradient = 2560});
  branch.operations.push_back({.output = 3072,
                               .backward_scratch = {3584},
                               .backward_kept = {4096},
                               .input_gradient = 4608,
                               .communication = 9});
  layer.branches.push_back(branch);
  return layer;
}

TEST(LayerRunTest, BackwardFreesInReverseWhatForwardKept) {
  Tape tape(/*communication=*/false);
  LayerRun run(tape, TwoOperations(), /*recompute=*/false);
  const Tape::Tensor output = run.Forward(tape.Allocate(512));
  tape.Free(output);
  tape.Free(run.Backward(tape.Allocate(512)));
  EXPECT_EQ(Text(tape),
            "+512 "                     // 0: input
            "+1024 +1536 +2048 -1 "     // A: scratch 1, saved 2, output 3
            "+3072 "                    // B: output 4
            "+512 -4 -5 "               // sum 5
            "+512 "                     // gradient 6
            "+4096 +3584 +4608 -8 "     // B: kept 7, scratch 8, gradient 9
            "-3 +2560 -2 -9 "           // A: B has read 3; gradient 10
            "-7 +512 -10 -6 -0 -11 ");  // sum of gradients 11
}

TEST(LayerRunTest, RecomputationKeepsOnlyTheInput) {
  Tape tape(/*communication=*/false);
  LayerRun run(tape, TwoOperations(), /*recompute=*/true);
  tape.Free(run.Forward(tape.Allocate(512)));
  EXPECT_EQ(Text(tape), "+512 +1024 +1536 +2048 -1 -2 +3072 -3 +512 -4 -5 ");
}

TEST(LayerRunTest, RecomputationRunsForwardAgainInTheBackwardPass) {
  Tape plain(/*communication=*/false);
  Tape tape(/*communication=*/false);
  for (Tape* t : {&plain, &tape}) {
    LayerRun run(*t, TwoOperations(), t == &tape);
    t->Free(run.Forward(t->Allocate(512)));
    t->Free(run.Backward(t->Allocate(512)));
  }
  EXPECT_EQ(tape.allocations(), plain.allocations() + 5) << "scratch, saved, two outputs and the sum again";
}

TEST(LayerRunTest, CommunicationHasAStreamOfItsOwnWhereThereIsOne) {
  Tape tape(/*communication=*/true);
  LayerRun run(tape, TwoOperations(), /*recompute=*/false);
  tape.Free(run.Forward(tape.Allocate(512)));
  EXPECT_EQ(Text(tape), "+512 +1024 +1536 +2048 -1 +512@ +3072 -4 +512 -5 -6 ");
}

}  // namespace
}  // namespace stalloc::planner
