#include "allocator/engine/follow/script_cursor.h"

#include <algorithm>
#include <utility>

#include "allocator/engine/bytes/plan_reading.h"

namespace stalloc {
namespace {

constexpr std::int32_t kOfAll = -1;  // the index of a family

LoadedScript::Place PlaceIn(const std::vector<Slot>& slots, const std::vector<std::uint16_t>& slot_flags,
                            const PlanStreams& streams, const Entry& entry) {
  const StreamIndex stream = streams.NumberOf(entry.stream);
  if (entry.slot == kNoSlot || stream == kNoStream) return {};
  const Slot& slot = slots[entry.slot];
  return {WholeGranules(slot.offset), WholeGranules(slot.capacity), stream, slot_flags[entry.slot]};
}

}  // namespace

LoadedScript::LoadedScript(const Script& script, const std::vector<Slot>& slots,
                           const std::vector<std::uint16_t>& slot_flags, const PlanStreams& streams)
    : index_(script) {
  places_.reserve(script.entries.size());
  for (const Entry& entry : script.entries) places_.push_back(PlaceIn(slots, slot_flags, streams, entry));
  phases_.reserve(script.phases.size());
  for (const Phase& phase : script.phases) {
    phases_.push_back({MarkKey(phase.mark), static_cast<std::int32_t>(phase.first_entry)});
    if (phase.mark.kind != MarkKind::kMicrobatch) continue;
    std::int32_t& last = last_of_family_[MarkKey(phase.mark, kOfAll)];
    last = std::max(last, phase.mark.index);
  }
  phases_.push_back({0, index_.size()});
}

// Blocks there leave a trace at their frees: graphs are launched on any stream.
void LoadedScript::LoadLent(const Script& script, const std::vector<Slot>& lent_slots, const PlanStreams& streams,
                            Granules lent_begin) {
  const auto is_lent = [](const Entry& entry) { return entry.lent_slot != kNoSlot; };
  if (std::ranges::none_of(script.entries, is_lent)) return;
  for (const Entry& entry : script.entries) {
    Place place;
    const StreamIndex stream = streams.NumberOf(entry.stream);
    if (is_lent(entry) && stream != kNoStream) {
      const Slot& slot = lent_slots[entry.lent_slot];
      place = {lent_begin + WholeGranules(slot.offset), WholeGranules(slot.capacity), stream, 0};
    }
    lent_places_.push_back(place);
  }
}

std::int32_t LoadedScript::FindAlike(const Mark& mark, std::int32_t after) const noexcept {
  if (mark.kind != MarkKind::kMicrobatch) return kNoPhase;
  const auto family = last_of_family_.find(MarkKey(mark, kOfAll));
  if (family == last_of_family_.end() || mark.index <= family->second) return kNoPhase;
  const std::int32_t last = family->second;
  return FindPhase(MarkKey(mark, last > 0 ? 1 + (mark.index - 1) % last : 0), after);
}

std::int32_t LoadedScript::FindPhase(std::uint64_t key, std::int32_t after) const noexcept {
  for (std::int32_t phase = after + 1; phase < phases(); ++phase) {
    if (At(phase).key == key) return phase;
  }
  for (std::int32_t phase = 0; phase < after && phase < phases(); ++phase) {
    if (At(phase).key == key) return phase;
  }
  return kNoPhase;
}

// ScriptCursor --------------------------------------------------------------------------------------------------------

ScriptCursor::ScriptCursor(const DevicePlan& plan, const PlanStreams& streams, Granules lent_begin)
    : begins_(ScriptBegins(plan)), prologue_(plan.prologue.size()) {
  scripts_.reserve(plan.prologue.size() + plan.cycle.size());
  const std::vector<std::uint16_t> slot_flags = FlagsOfSlots(plan, streams);
  ForEachScript(plan, [&](const Script& script) {
    scripts_.emplace_back(script, plan.slots, slot_flags, streams);
    if (lent_begin > 0) scripts_.back().LoadLent(script, plan.lent_slots, streams, lent_begin);
  });
  if (prologue_ > 0) at_.script = scripts_.data();
}

void ScriptCursor::StartAt(const PlanStart& start) noexcept {
  iterations_ = start.iterations;
  if (iterations_ > 0) at_.script = nullptr;
  for (std::size_t kind = 0; kind < 32; ++kind) explicit_seen_[kind] = (start.explicit_kinds >> kind & 1) != 0;
}

bool ScriptCursor::OnMark(const Mark& mark, std::int32_t at) noexcept {
  if (Overruled(mark)) return false;
  if (mark.kind == MarkKind::kFence) {
    if (mark.edge == MarkEdge::kBegin) ++fence_depth_;
    if (mark.edge == MarkEdge::kEnd && fence_depth_ > 0) --fence_depth_;  // else an end without a begin
    return false;
  }
  if (fenced()) return false;
  const std::uint64_t key = MarkKey(mark);
  if (mark.kind == MarkKind::kIteration && mark.edge == MarkEdge::kBegin) return BeginIteration(key);
  const bool came_back = ComeBack();
  const bool of_no_pass = mark.kind == MarkKind::kLayer && mark.pass == Pass::kOther;
  const std::int32_t own = script() != nullptr ? script()->FindPhase(key, phase()) : LoadedScript::kNoPhase;
  const bool begins_set_up = of_no_pass && mark.edge == MarkEdge::kBegin && iterations_ == 1 &&
                             (script() == nullptr || script()->IsEmpty(own));
  if (begins_set_up && GoToSetUp(key, came_back ? entry() : at)) return true;
  if (GoTo(own)) return true;
  if (script() != nullptr && GoTo(script()->FindAlike(mark, phase()))) return true;
  return came_back || (of_no_pass && iterations_ == 0 && GoAhead(key));
}

bool ScriptCursor::GoToSetUp(std::uint64_t key, std::int32_t at) noexcept {
  if (prologue_ == 0 || script() == scripts_.data()) return false;
  const LoadedScript& set_up = scripts_.front();
  const std::int32_t phase = set_up.FindPhase(key, set_up_phase_);
  if (phase <= set_up_phase_ || set_up.IsEmpty(phase)) return false;
  left_ = {at_.script, at_.phase, at};
  set_up_phase_ = phase;
  at_.script = &set_up;
  return GoTo(phase);
}

bool ScriptCursor::ComeBack() noexcept {
  if (left_.script == nullptr) return false;
  at_ = std::exchange(left_, {});
  in_phase_ = false;
  return true;
}

// To the first iteration's script, or back from it to the set-up's.
bool ScriptCursor::GoAhead(std::uint64_t key) noexcept {
  const LoadedScript* const set_up = prologue_ > 0 ? scripts_.data() : nullptr;
  const LoadedScript* const other = script() == set_up ? ScriptOfIteration(0) : set_up;
  const std::int32_t phase = other != nullptr ? other->FindPhase(key, LoadedScript::kNoPhase) : LoadedScript::kNoPhase;
  if (phase == LoadedScript::kNoPhase) return false;
  at_.script = other;
  return GoTo(phase);
}

bool ScriptCursor::BeginIteration(std::uint64_t key) noexcept {
  left_ = {};
  at_ = {.script = ScriptOfIteration(iterations_++)};
  in_phase_ = false;
  if (script() != nullptr) GoTo(script()->FindPhase(key, phase()));
  return true;
}

bool ScriptCursor::GoTo(std::int32_t phase) noexcept {
  in_phase_ = phase != LoadedScript::kNoPhase;
  if (!in_phase_) return false;
  at_.phase = phase;
  at_.entry = script()->FirstEntry(phase);
  return true;
}

std::pair<std::int32_t, std::int32_t> ScriptCursor::Expected() const noexcept {
  if (script() == nullptr) return {0, 0};
  return in_phase_ ? std::pair(script()->FirstEntry(phase()), script()->EndOf(phase()))
                   : std::pair(0, script()->index().size());
}

bool ScriptCursor::Overruled(const Mark& mark) noexcept {
  bool& explicit_seen = explicit_seen_[static_cast<std::uint8_t>(mark.kind)];
  explicit_seen = explicit_seen || !mark.automatic;
  return mark.automatic && explicit_seen;
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

// Turns ---------------------------------------------------------------------------------------------------------------

Turns::Turns(const DevicePlan& plan)
    : turns_(plan.turns), period_(static_cast<std::uint32_t>(plan.cycle.size()) / plan.turns) {
  if (empty()) return;
  crossing_.resize(plan.cycle.size());
  for (std::size_t script = 0; script < plan.cycle.size(); ++script) {
    const std::vector<Entry>& entries = plan.cycle[script].entries;
    for (std::size_t e = 0; e < entries.size(); ++e) {
      if (entries[e].slot == kNoSlot) continue;
      // From the entry to where the next script begins, and the one after it.
      std::uint64_t ahead = entries.size() - e;
      for (std::size_t next = 1; next <= plan.cycle.size() && ahead < entries[e].expected_life; ++next) {
        const std::size_t at = (script + next) % plan.cycle.size();
        crossing_[at].push_back(PlaceOf(plan, entries[e]));
        ahead += plan.cycle[at].entries.size();
      }
    }
  }
}

}  // namespace stalloc
