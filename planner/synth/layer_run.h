// LayerRun: one layer of one micro-batch on the tape, from its forward pass to its backward pass. Not thread-safe.
#pragma once

#include <string>
#include <vector>

#include "planner/synth/layer.h"
#include "planner/synth/tape.h"

namespace stalloc::planner {

class LayerRun {
 public:
  // `recompute`: the forward pass keeps nothing but its input, the backward pass runs it again first.
  LayerRun(Tape& tape, Layer layer, bool recompute);

  [[nodiscard]] const std::string& name() const { return layer_.name; }

  // Owns `input` until the backward pass has ended; returns the output, which is the caller's.
  Tape::Tensor Forward(Tape::Tensor input);
  // Frees `gradient`; returns the input's gradient, which is the caller's.
  Tape::Tensor Backward(Tape::Tensor gradient);

 private:
  // What a forward pass left for the backward pass of an operation.
  struct Kept {
    std::vector<Tape::Tensor> saved;
    Tape::Tensor output = Tape::kNone;
  };

  Tape::Tensor RunForward(bool keep);
  Tape::Tensor BranchForward(const Branch& branch, bool keep);
  Tape::Tensor BranchBackward(const Branch& branch, Tape::Tensor gradient);
  Tape::Tensor OperationBackward(const Operation& operation);
  Tape::Tensor Gather(const Operation& operation);
  std::vector<Tape::Tensor> AllocateAll(const std::vector<Bytes>& sizes);
  void FreeAll(const std::vector<Tape::Tensor>& tensors);

  Tape& tape_;
  Layer layer_;
  bool recompute_;
  Tape::Tensor input_ = Tape::kNone;
  std::vector<Kept> kept_;                   // a stack: one entry for each operation that ran forward
  std::vector<Tape::Tensor> branch_inputs_;  // of the second and later branches; a stack
};

}  // namespace stalloc::planner
