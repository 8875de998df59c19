#include "planner/analysis/memory_class.h"

#include <algorithm>
#include <cstddef>

#include "planner/analysis/weight_casts.h"

namespace stalloc::planner {
namespace {

// Requests of an iteration that live no longer are temporaries if no mark says otherwise.
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
    case TensorRole::kInput:
      return MemoryClass::kInputs;
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
    case MemoryClass::kCasts:
      return "casts of weights";
    case MemoryClass::kActivations:
      return "activations";
    case MemoryClass::kInputs:
      return "inputs";
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
    : device_(device),
      model_(model),
      phases_(phases),
      recomputed_(FindRecomputation(device)),
      casts_(FindWeightCasts(device)) {
  for (const BlockTensor& tensor : device.tensors) {
    names_gradients_ = names_gradients_ || tensor.role == TensorRole::kGradient;
    names_inputs_ = names_inputs_ || tensor.role == TensorRole::kInput;
  }
  std::uint64_t requests = 0;
  for (const SegmentRequests& segment : device.segments) {
    requests_before_.push_back(requests);
    requests += segment.allocations.size();
  }
  requests_before_.push_back(requests);
}

MemoryClass MemoryClassifier::Classify(const Allocation& allocation) const {
  if (allocation.role != TensorRole::kNone) return ClassOfTensor(allocation.role);
  if (IsCast(allocation)) return MemoryClass::kCasts;
  const bool transient = !allocation.outside && !IsPersistent(device_, allocation);
  return transient && Varies(allocation) ? MemoryClass::kDynamic : ClassifyByLifetime(allocation);
}

MemoryClass MemoryClassifier::ClassifyByLifetime(const Allocation& allocation) const {
  if (allocation.role != TensorRole::kNone) return ClassOfTensor(allocation.role);
  if (allocation.outside) return MemoryClass::kOther;
  if (IsCast(allocation)) return MemoryClass::kCasts;
  return IsPersistent(device_, allocation) ? ClassOfPersistent(allocation) : ClassOfTransient(allocation);
}

std::uint64_t MemoryClassifier::LifeInRequests(const Allocation& allocation) const {
  if (allocation.outside) return 0;
  const std::uint64_t end = allocation.freed() ? requests_before_[allocation.free_segment] + allocation.free_ordinal
                                               : requests_before_.back();
  return end - requests_before_[allocation.segment] - allocation.ordinal;
}

bool MemoryClassifier::Varies(const Allocation& allocation) const {
  if (model_ == nullptr) return false;
  const CycleEntry* entry = model_->EntryOf(allocation.segment, allocation.ordinal);
  return entry == nullptr ? allocation.segment > model_->cycle.warmup
                          : entry->entry_class == EntryClass::kDynamic || entry->entry_class == EntryClass::kOptional;
}

MemoryClass MemoryClassifier::ClassOfPersistent(const Allocation& allocation) const {
  const std::size_t span = phases_.At(allocation.event);
  switch (phases_.spans()[span].kind) {
    case PhaseKind::kSetUp:
      return MemoryClass::kWeights;
    case PhaseKind::kOptimizer:
      return MemoryClass::kOptimizerState;
    case PhaseKind::kBackward:
    case PhaseKind::kForwardBackward:
      return RecomputationOf(allocation) == nullptr ? MemoryClass::kGradients : MemoryClass::kOther;
    case PhaseKind::kUnmarked:
      if (!phases_.knows_optimizer()) return MemoryClass::kOptimizerState;
      return names_gradients_ ? MemoryClass::kOther : MemoryClass::kGradients;
    case PhaseKind::kBetween:
      return phases_.IsBehindPass(span) && !names_gradients_ ? MemoryClass::kGradients : MemoryClass::kOther;
    case PhaseKind::kForward:
    case PhaseKind::kAfterOptimizer:
    case PhaseKind::kFence:
      break;
  }
  return MemoryClass::kOther;
}

MemoryClass MemoryClassifier::ClassOfTransient(const Allocation& allocation) const {
  const std::size_t from = phases_.At(allocation.event);
  const PhaseKind kind = phases_.spans()[from].kind;
  if (kind == PhaseKind::kForward) {
    const bool same_phase = allocation.freed() && phases_.At(allocation.free_event) == from;
    return same_phase ? MemoryClass::kTemporaries : MemoryClass::kActivations;
  }
  if (const RecomputedRange* const range = RecomputationOf(allocation); range != nullptr) {
    return allocation.free_event < range->last_event ? MemoryClass::kTemporaries : MemoryClass::kActivations;
  }
  switch (kind) {
    case PhaseKind::kOptimizer:
      return MemoryClass::kTemporaries;
    case PhaseKind::kBackward:
      return ReachesOptimizer(allocation) ? MemoryClass::kGradients : MemoryClass::kTemporaries;
    case PhaseKind::kBetween:
      if (!phases_.IsBehindPass(from)) return ClassOutsideOfPasses(allocation);
      if (!ReachesOptimizer(allocation)) return MemoryClass::kTemporaries;
      return names_gradients_ ? MemoryClass::kOther : MemoryClass::kGradients;
    case PhaseKind::kAfterOptimizer:
      return ClassOutsideOfPasses(allocation);
    case PhaseKind::kSetUp:  // and all of the first iteration, where a hook marks the others: its optimizer is there
      if (phases_.OptimizerAfter(allocation.event) != kNever) return ClassOfUnmarked(allocation);
      if (!allocation.freed() || allocation.free_segment > 0) return ClassOutsideOfPasses(allocation);
      break;
    default:
      break;
  }
  return ClassOfUnmarked(allocation);
}

// No mark distinguishes passes.
MemoryClass MemoryClassifier::ClassOfUnmarked(const Allocation& allocation) const {
  if (!names_gradients_ && ReachesOptimizer(allocation)) return MemoryClass::kGradients;
  return IsShort(allocation) ? MemoryClass::kTemporaries : MemoryClass::kActivations;
}

// A pass is yet to come.
MemoryClass MemoryClassifier::ClassOutsideOfPasses(const Allocation& allocation) const {
  const std::uint64_t pass = phases_.PassAfter(allocation.event);
  if (pass == kNever || (allocation.freed() && allocation.free_event < pass)) return MemoryClass::kTemporaries;
  return names_inputs_ ? MemoryClass::kOther : MemoryClass::kInputs;
}

bool MemoryClassifier::IsCast(const Allocation& allocation) const {
  return std::binary_search(casts_.begin(), casts_.end(), allocation.event);
}

bool MemoryClassifier::ReachesOptimizer(const Allocation& allocation) const {
  const std::uint64_t optimizer = phases_.OptimizerAfter(allocation.event);
  return optimizer != kNever && (!allocation.freed() || allocation.free_event >= optimizer);
}

const RecomputedRange* MemoryClassifier::RecomputationOf(const Allocation& allocation) const {
  const auto range =
      std::lower_bound(recomputed_.begin(), recomputed_.end(), allocation.event,
                       [](const RecomputedRange& at, std::uint64_t event) { return at.last_event < event; });
  return range != recomputed_.end() && range->first_event <= allocation.event ? &*range : nullptr;
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
        "classes: without optimizer marks, gradients count as activations, and what iterations leave live as "
        "optimizer state");
  }
  return notes;
}

}  // namespace stalloc::planner
