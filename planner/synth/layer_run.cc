#include "planner/synth/layer_run.h"

#include <utility>

namespace stalloc::planner {

LayerRun::LayerRun(Tape& tape, Layer layer, bool recompute)
    : tape_(tape), layer_(std::move(layer)), recompute_(recompute) {}

std::vector<Tape::Tensor> LayerRun::AllocateAll(const std::vector<Bytes>& sizes) {
  std::vector<Tape::Tensor> tensors;
  tensors.reserve(sizes.size());
  for (const Bytes bytes : sizes) tensors.push_back(tape_.Allocate(bytes));
  return tensors;
}

void LayerRun::FreeAll(const std::vector<Tape::Tensor>& tensors) {
  for (const Tape::Tensor tensor : tensors) tape_.Free(tensor);
}

Tape::Tensor LayerRun::Gather(const Operation& operation) {
  return tape_.communication() ? tape_.Allocate(operation.communication, Tape::kCommunication) : Tape::kNone;
}

Tape::Tensor LayerRun::Forward(Tape::Tensor input) {
  input_ = input;
  return RunForward(!recompute_);
}

Tape::Tensor LayerRun::RunForward(bool keep) {
  Tape::Tensor current = input_;
  for (const Branch& branch : layer_.branches) {
    const Tape::Tensor output = BranchForward(branch, keep);
    if (&branch != &layer_.branches.front()) {
      keep ? branch_inputs_.push_back(current) : tape_.Free(current);
    }
    current = output;
  }
  return current;
}

Tape::Tensor LayerRun::BranchForward(const Branch& branch, bool keep) {
  Tape::Tensor passing = Tape::kNone;  // the last output, where no backward pass needs it
  for (const Operation& operation : branch.operations) {
    const Tape::Tensor gathered = Gather(operation);
    const std::vector<Tape::Tensor> scratch = AllocateAll(operation.scratch);
    Kept kept{.saved = AllocateAll(operation.saved)};
    const Tape::Tensor output = tape_.Allocate(operation.output);
    FreeAll(scratch);
    tape_.Free(gathered);
    if (output != Tape::kNone) {
      tape_.Free(std::exchange(passing, Tape::kNone));
      (keep && operation.keep != Keep::kUntilRead ? kept.output : passing) = output;
    }
    if (keep) {
      kept_.push_back(std::move(kept));
    } else {
      FreeAll(kept.saved);
    }
  }
  if (branch.residual == 0) return passing;
  const Tape::Tensor sum = tape_.Allocate(branch.residual);
  tape_.Free(passing);
  return sum;
}

Tape::Tensor LayerRun::Backward(Tape::Tensor gradient) {
  if (recompute_) tape_.Free(RunForward(true));
  for (std::size_t i = layer_.branches.size(); i-- > 0;) {
    gradient = BranchBackward(layer_.branches[i], gradient);
    if (i == 0) break;
    tape_.Free(branch_inputs_.back());
    branch_inputs_.pop_back();
  }
  tape_.Free(std::exchange(input_, Tape::kNone));
  return gradient;
}

Tape::Tensor LayerRun::BranchBackward(const Branch& branch, Tape::Tensor gradient) {
  std::vector<Tape::Tensor> until_end;
  Tape::Tensor current = gradient;
  for (std::size_t i = branch.operations.size(); i-- > 0;) {
    const Operation& operation = branch.operations[i];
    const std::vector<Tape::Tensor> lasting = AllocateAll(operation.backward_kept);
    until_end.insert(until_end.end(), lasting.begin(), lasting.end());
    const Tape::Tensor next = OperationBackward(operation);
    if (next == Tape::kNone) continue;
    // With a residual connection what came in is still to be added.
    if (current != gradient || branch.residual == 0) tape_.Free(current);
    current = next;
  }
  FreeAll(until_end);
  if (branch.residual == 0) return current;
  const Tape::Tensor sum = tape_.Allocate(branch.residual);
  tape_.Free(current);
  tape_.Free(gradient);
  return sum;
}

// Frees what the forward pass kept for it; returns the input's gradient, kNone where the one that came in goes on.
Tape::Tensor LayerRun::OperationBackward(const Operation& operation) {
  Kept kept = std::move(kept_.back());
  kept_.pop_back();
  // The next operation has run backward already.
  if (operation.keep == Keep::kForNextBackward) tape_.Free(kept.output);
  const Tape::Tensor gathered = Gather(operation);
  const std::vector<Tape::Tensor> scratch = AllocateAll(operation.backward_scratch);
  const Tape::Tensor input_gradient = tape_.Allocate(operation.input_gradient);
  FreeAll(scratch);
  tape_.Free(gathered);
  FreeAll(kept.saved);
  if (operation.keep == Keep::kForOwnBackward) tape_.Free(kept.output);
  return input_gradient;
}

}  // namespace stalloc::planner
