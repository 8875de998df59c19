#include "allocator/engine/script_cursor.h"

namespace stalloc {

ScriptCursor::ScriptCursor(const DevicePlan& plan) : prologue_(plan.prologue.size()) {
  scripts_.reserve(plan.prologue.size() + plan.cycle.size());
  for (const Script& script : plan.prologue) scripts_.emplace_back(script, plan.slots);
  for (const Script& script : plan.cycle) scripts_.emplace_back(script, plan.slots);
  if (prologue_ > 0) script_ = scripts_.data();
}

bool ScriptCursor::OnMark(const Mark& mark) noexcept {
  if (mark.kind == MarkKind::kFence) return OnFence(mark);
  if (fenced()) return false;
  const std::uint64_t key = MarkKey(mark);
  if (mark.kind == MarkKind::kIteration && mark.edge == MarkEdge::kBegin) return BeginIteration(key);
  return script_ != nullptr && GoTo(script_->FindPhase(key, phase_));
}

bool ScriptCursor::BeginIteration(std::uint64_t key) noexcept {
  script_ = ScriptOfIteration(iterations_++);
  phase_ = LoadedScript::kNoPhase;
  entry_ = 0;
  if (script_ != nullptr) GoTo(script_->FindPhase(key, phase_));
  return true;
}

bool ScriptCursor::GoTo(std::int32_t phase) noexcept {
  if (phase == LoadedScript::kNoPhase) return false;
  phase_ = phase;
  entry_ = script_->FirstEntry(phase);
  return true;
}

bool ScriptCursor::OnFence(const Mark& mark) noexcept {
  if (mark.edge == MarkEdge::kBegin) {
    if (fence_depth_++ == 0) fence_key_ = MarkKey(mark);
    return false;
  }
  if (fence_depth_ == 0) return false;  // an end without a begin
  if (--fence_depth_ > 0 || script_ == nullptr) return false;
  const std::int32_t next = phase_ + 1;
  if (next >= script_->phases() || script_->PhaseKey(next) != fence_key_) return false;
  const std::int32_t end = script_->FindPhase(MarkKey(mark), next);
  return end > next && GoTo(end);
}

const LoadedScript* ScriptCursor::ScriptOfIteration(std::uint64_t iteration) const noexcept {
  if (iteration + 1 < prologue_) return &scripts_[iteration + 1];
  const std::size_t cycle = scripts_.size() - prologue_;
  if (cycle == 0) return nullptr;
  const std::uint64_t first = prologue_ > 0 ? prologue_ - 1 : 0;  // the first iteration of the cycle
  return &scripts_[prologue_ + (iteration - first) % cycle];
}

}  // namespace stalloc
