#include "planner/analysis/memory_class.h"

#include <algorithm>
#include <cstddef>

namespace stalloc::planner {
namespace {

// Of an iteration's requests: what lives no longer is a temporary where no mark tells.
constexpr std::uint64_t kShortShare = 100;
constexpr std::uint64_t kLeastShort = 4;

MemoryClass ClassOfTensor(TensorRole role) {
  switch (role) {
    case TensorRole::kParameter:
    case TensorRole::kBuffer:
      return MemoryClass::kWeights;
    case TensorRole::kGradient:
      return MemoryClass::kGradients;
    case TensorRole::kOptimizerState:
      return MemoryClass::kOptimizerState;
    case TensorRole::kNone:
      break;
  }
  return MemoryClass::kOther;
}

}  // namespace

const char* MemoryClassName(MemoryClass memory_class) {
  switch (memory_class) {
    case MemoryClass::kWeights:
      return "weights";
    case MemoryClass::kGradients:
      return "gradients";
    case MemoryClass::kOptimizerState:
      return "optimizer state";
    case MemoryClass::kActivations:
      return "activations";
    case MemoryClass::kTemporaries:
      return "temporaries";
    case MemoryClass::kDynamic:
      return "dynamic";
    case MemoryClass::kOther:
      return "other";
    case MemoryClass::kCount:
      break;
  }
  return "?";
}

bool IsPersistent(const DeviceTrace& device, const Allocation& allocation) {
  const bool last = allocation.segment + 1 == device.segments.size() && allocation.segment > 0;
  const bool stays = !allocation.freed() || FreedAtExit(device, allocation);
  return !last && (stays || allocation.free_segment > allocation.segment + 1);
}

MemoryClassifier::MemoryClassifier(const DeviceTrace& device, const SteadyModel* model, const PhaseMap& phases)
    : device_(device), model_(model), phases_(phases) {
  std::uint64_t requests = 0;
  for (const SegmentRequests& segment : device.segments) {
    requests_before_.push_back(requests);
    requests += segment.allocations.size();
  }
  requests_before_.push_back(requests);
}

MemoryClass MemoryClassifier::Classify(const Allocation& allocation) const {
  if (allocation.role != TensorRole::kNone) {
    return ClassOfTensor(allocation.role);
  }
  const bool transient = !allocation.outside && !IsPersistent(device_, allocation);
  return transient && Varies(allocation) ? MemoryClass::kDynamic : ClassifyByLifetime(allocation);
}

MemoryClass MemoryClassifier::ClassifyByLifetime(const Allocation& allocation) const {
  if (allocation.role != TensorRole::kNone) {
    return ClassOfTensor(allocation.role);
  }
  if (allocation.outside) {
    return MemoryClass::kOther;
  }
  return IsPersistent(device_, allocation) ? ClassOfPersistent(allocation) : ClassOfTransient(allocation);
}

std::uint64_t MemoryClassifier::LifeInRequests(const Allocation& allocation) const {
  if (allocation.outside) {
    return 0;
  }
  const std::uint64_t end = allocation.freed() ? requests_before_[allocation.free_segment] + allocation.free_ordinal
                                               : requests_before_.back();
  return end - requests_before_[allocation.segment] - allocation.ordinal;
}

bool MemoryClassifier::Varies(const Allocation& allocation) const {
  if (model_ == nullptr || !model_->alignments[allocation.segment].has_value()) {
    return false;
  }
  const std::uint32_t entry = model_->alignments[allocation.segment]->ToLeft(allocation.ordinal);
  if (entry == kNone) {
    return allocation.segment > model_->cycle.warmup;
  }
  const std::uint32_t script = model_->cycle.ScriptOf(allocation.segment + model_->cycle.period - 1);
  const EntryClass entry_class = model_->scripts[script][entry].entry_class;
  return entry_class == EntryClass::kDynamic || entry_class == EntryClass::kOptional;
}

MemoryClass MemoryClassifier::ClassOfPersistent(const Allocation& allocation) const {
  switch (phases_.spans()[phases_.At(allocation.event)].kind) {
    case PhaseKind::kSetUp:
      return MemoryClass::kWeights;
    case PhaseKind::kOptimizer:
      return MemoryClass::kOptimizerState;
    case PhaseKind::kBackward:
    case PhaseKind::kForwardBackward:
      return MemoryClass::kGradients;
    case PhaseKind::kUnmarked:
    case PhaseKind::kBetween:
      return phases_.knows_optimizer() ? MemoryClass::kGradients : MemoryClass::kOptimizerState;
    case PhaseKind::kForward:
    case PhaseKind::kFence:
      break;
  }
  return MemoryClass::kOther;
}

MemoryClass MemoryClassifier::ClassOfTransient(const Allocation& allocation) const {
  const std::size_t from = phases_.At(allocation.event);
  const PhaseKind kind = phases_.spans()[from].kind;
  const bool same_phase = allocation.freed() && phases_.At(allocation.free_event) == from;
  if (kind == PhaseKind::kForward) {
    return same_phase ? MemoryClass::kTemporaries : MemoryClass::kActivations;
  }
  if (kind == PhaseKind::kOptimizer) {
    return MemoryClass::kTemporaries;
  }
  const std::uint64_t optimizer = phases_.OptimizerAfter(allocation.event);
  if (optimizer != kNever && (!allocation.freed() || allocation.free_event >= optimizer)) {
    return MemoryClass::kGradients;
  }
  if (kind == PhaseKind::kBackward || kind == PhaseKind::kBetween) {
    return MemoryClass::kTemporaries;
  }
  return IsShort(allocation) ? MemoryClass::kTemporaries : MemoryClass::kActivations;
}

bool MemoryClassifier::IsShort(const Allocation& allocation) const {
  const std::uint64_t requests = requests_before_[allocation.segment + 1] - requests_before_[allocation.segment];
  return allocation.freed() && LifeInRequests(allocation) <= std::max(kLeastShort, requests / kShortShare);
}

std::vector<std::string> ClassNotes(const PhaseMap& phases) {
  std::vector<std::string> notes;
  if (!phases.knows_microbatches()) {
    notes.emplace_back(
        "classes: without micro-batch marks, temporaries are what lives for at most 1 % of an iteration's requests, "
        "activations what lives longer");
  }
  if (!phases.knows_optimizer()) {
    notes.emplace_back(
        "classes: without optimizer marks, gradients count as activations, and what iterations leave behind as "
        "optimizer state");
  }
  return notes;
}

}  // namespace stalloc::planner
