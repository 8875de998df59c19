#include "allocator/engine/script_cursor.h"

#include "allocator/engine/plan_reading.h"
#include "allocator/engine/slot_streams.h"

namespace stalloc {

ScriptCursor::ScriptCursor(const DevicePlan& plan) : prologue_(plan.prologue.size()) {
  scripts_.reserve(plan.prologue.size() + plan.cycle.size());
  const std::vector<std::uint16_t> slot_flags = FlagsOfSlots(plan);
  std::uint64_t entries = 0;
  ForEachScript(plan, [&](const Script& script) {
    scripts_.emplace_back(script, plan.slots, slot_flags);
    begins_.push_back(entries);
    entries += script.entries.size();
  });
  if (prologue_ > 0) script_ = scripts_.data();
}

bool ScriptCursor::OnMark(const Mark& mark, std::int32_t at) noexcept {
  if (Overruled(mark)) return false;
  if (mark.kind == MarkKind::kFence) {
    OnFence(mark.edge);
    return false;
  }
  if (fenced()) return false;
  const std::uint64_t key = MarkKey(mark);
  if (mark.kind == MarkKind::kIteration && mark.edge == MarkEdge::kBegin) return BeginIteration(key);
  const bool came_back = ComeBack();
  const bool of_no_pass = mark.kind == MarkKind::kLayer && mark.pass == Pass::kOther;
  const std::int32_t own = script_ != nullptr ? script_->FindPhase(key, phase_) : LoadedScript::kNoPhase;
  const bool begins_set_up = of_no_pass && mark.edge == MarkEdge::kBegin && iterations_ == 1 && IsEmpty(own);
  if (begins_set_up && GoToSetUp(key, came_back ? entry_ : at)) return true;
  if (GoTo(own)) return true;
  if (script_ != nullptr && GoTo(script_->FindAlike(mark, phase_))) return true;
  return came_back || (of_no_pass && iterations_ == 0 && GoAhead(key));
}

bool ScriptCursor::GoToSetUp(std::uint64_t key, std::int32_t at) noexcept {
  if (prologue_ == 0 || script_ == scripts_.data()) return false;
  const LoadedScript& set_up = scripts_.front();
  const std::int32_t phase = set_up.FindPhase(key, set_up_phase_);
  if (phase == LoadedScript::kNoPhase || phase <= set_up_phase_ || set_up.FirstEntry(phase) == set_up.EndOf(phase)) {
    return false;
  }
  left_ = script_;
  left_phase_ = phase_;
  left_entry_ = at;
  set_up_phase_ = phase;
  script_ = &set_up;
  return GoTo(phase);
}

bool ScriptCursor::ComeBack() noexcept {
  if (left_ == nullptr) return false;
  script_ = left_;
  phase_ = left_phase_;
  entry_ = left_entry_;
  in_phase_ = false;
  left_ = nullptr;
  return true;
}

// Of script(); kNoPhase has no entries either.
bool ScriptCursor::IsEmpty(std::int32_t phase) const noexcept {
  return phase == LoadedScript::kNoPhase || script_->FirstEntry(phase) == script_->EndOf(phase);
}

// To the first iteration's script, or back from it to the set-up's.
bool ScriptCursor::GoAhead(std::uint64_t key) noexcept {
  const LoadedScript* const set_up = prologue_ > 0 ? scripts_.data() : nullptr;
  const LoadedScript* const other = script_ == set_up ? ScriptOfIteration(0) : set_up;
  const std::int32_t phase = other != nullptr ? other->FindPhase(key, LoadedScript::kNoPhase) : LoadedScript::kNoPhase;
  if (phase == LoadedScript::kNoPhase) return false;
  script_ = other;
  return GoTo(phase);
}

bool ScriptCursor::BeginIteration(std::uint64_t key) noexcept {
  left_ = nullptr;
  script_ = ScriptOfIteration(iterations_++);
  phase_ = LoadedScript::kNoPhase;
  in_phase_ = false;
  entry_ = 0;
  if (script_ != nullptr) GoTo(script_->FindPhase(key, phase_));
  return true;
}

bool ScriptCursor::GoTo(std::int32_t phase) noexcept {
  in_phase_ = phase != LoadedScript::kNoPhase;
  if (!in_phase_) return false;
  phase_ = phase;
  entry_ = script_->FirstEntry(phase);
  return true;
}

std::pair<std::int32_t, std::int32_t> ScriptCursor::Expected() const noexcept {
  if (script_ == nullptr) return {0, 0};
  return in_phase_ ? std::pair(script_->FirstEntry(phase_), script_->EndOf(phase_))
                   : std::pair(0, script_->index().size());
}

bool ScriptCursor::Overruled(const Mark& mark) noexcept {
  bool& explicit_seen = explicit_seen_[static_cast<std::uint8_t>(mark.kind)];
  explicit_seen = explicit_seen || !mark.automatic;
  return mark.automatic && explicit_seen;
}

void ScriptCursor::OnFence(MarkEdge edge) noexcept {
  if (edge == MarkEdge::kBegin) {
    ++fence_depth_;
  } else if (fence_depth_ > 0) {  // else an end without a begin
    --fence_depth_;
  }
}

const LoadedScript* ScriptCursor::ScriptOfIteration(std::uint64_t iteration) const noexcept {
  if (iteration + 1 < prologue_) return &scripts_[iteration + 1];
  const std::size_t cycle = scripts_.size() - prologue_;
  if (cycle == 0) return nullptr;
  const std::uint64_t first = prologue_ > 0 ? prologue_ - 1 : 0;  // the first iteration of the cycle
  return &scripts_[prologue_ + (iteration - first + turned_) % cycle];
}

std::optional<std::uint32_t> ScriptCursor::NextInCycle() const noexcept {
  const LoadedScript* const next = ScriptOfIteration(iterations_);
  if (next == nullptr || next < scripts_.data() + prologue_) return std::nullopt;
  return static_cast<std::uint32_t>(next - scripts_.data() - prologue_);
}

const LoadedScript::Place* ScriptCursor::PlaceInTurn(std::int32_t entry, std::uint32_t scripts_later) const noexcept {
  const std::uint32_t number = script_number();
  if (script_ == nullptr || number < prologue_) return nullptr;
  const std::size_t cycle = scripts_.size() - prologue_;
  const LoadedScript& later = scripts_[prologue_ + (number - prologue_ + scripts_later) % cycle];
  return entry < later.index().size() ? &later.PlaceOf(entry) : nullptr;
}

void ScriptCursor::SetNextInCycle(std::uint32_t script) noexcept {
  const std::size_t cycle = scripts_.size() - prologue_;
  turned_ = (turned_ + script + cycle - *NextInCycle()) % cycle;
}

}  // namespace stalloc
