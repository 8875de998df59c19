// ScriptCursor: which script of a plan is live, and at which of its phases, by the marks of the training loop.
//
//   marks    (none yet)    iteration 0   iteration 1   iteration 2   iteration 3   ...
//   script   prologue[0]   prologue[1]   prologue[2]   cycle[0]      cycle[1]      ...   then around the cycle
//
// Iterations are counted by their begin marks as they are seen, whatever index they carry: a run may be resumed. Who
// knows better in which turn of the cycle the next one is (turns.h) sets the count right.
//
// Within a script a mark moves to the next phase that has an equal mark: forward from the present phase, else from the
// start; a mark that the script does not have, or that it is at already, moves nothing. Micro-batches beyond the plan's
// last one are followed as its earlier ones, in turn: a batch that grew. But before the loop, layer
// marks of no pass are looked for in the first iteration's script, too: a resumed run loads there (the optimizer's
// state) what a run from scratch makes in its first iteration, and gets the places planned for it. Inside a fence
// (evaluation, checkpoint) only fence marks count: the loop is left, and comes back to where it was. Marks that a hook
// placed are ignored from the first mark of their kind on that the training script placed itself. (The planner cuts
// traces by these rules, too: planner/analysis/segments.h.)
//
// Not thread-safe; OnMark is noexcept and takes no heap memory.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "allocator/engine/loaded_script.h"
#include "proto/model/plan.h"
#include "proto/model/trace.h"

namespace stalloc {

class ScriptCursor {
 public:
  explicit ScriptCursor(const DevicePlan& plan);

  // True if the mark names a place: script() and entry() then say what is expected next. `at`: the entry that the run
  // is at, to which it may come back.
  bool OnMark(const Mark& mark, std::int32_t at = 0) noexcept;

  // The script of the cycle that the next iteration will follow; none if that is one of the prologue, or there is no
  // cycle.
  [[nodiscard]] std::optional<std::uint32_t> NextInCycle() const noexcept;
  // The next iteration follows this one. REQUIRES: NextInCycle() is one.
  void SetNextInCycle(std::uint32_t script) noexcept;

  // Where an entry of script() lies so many scripts of the cycle later; null while script() is not of the cycle,
  // and if that script has no such entry.
  [[nodiscard]] const LoadedScript::Place* PlaceInTurn(std::int32_t entry, std::uint32_t scripts_later) const noexcept;

  // Null if the plan has no script for this time (an empty prologue before the first iteration).
  [[nodiscard]] const LoadedScript* script() const noexcept { return script_; }
  [[nodiscard]] std::int32_t entry() const noexcept { return entry_; }
  // Of script(), counted through prologue and cycle; 0 if there is none.
  [[nodiscard]] std::uint32_t script_number() const noexcept {
    return script_ != nullptr ? static_cast<std::uint32_t>(script_ - scripts_.data()) : 0;
  }
  // Of an entry of script(), counted through prologue and cycle.
  [[nodiscard]] std::uint64_t PositionOf(std::int32_t entry) const noexcept {
    return begins_[script_number()] + static_cast<std::uint64_t>(entry);
  }
  [[nodiscard]] std::int32_t phase() const noexcept { return phase_; }
  // The entries that can come before the next mark: [first, second). Of the whole script after a mark that it does not
  // have.
  [[nodiscard]] std::pair<std::int32_t, std::int32_t> Expected() const noexcept;
  [[nodiscard]] bool fenced() const noexcept { return fence_depth_ > 0; }
  [[nodiscard]] std::uint64_t iterations() const noexcept { return iterations_; }

 private:
  bool Overruled(const Mark& mark) noexcept;
  void OnFence(MarkEdge edge) noexcept;
  bool BeginIteration(std::uint64_t key) noexcept;
  bool GoTo(std::int32_t phase) noexcept;
  bool GoAhead(std::uint64_t key) noexcept;
  bool GoToSetUp(std::uint64_t key, std::int32_t at) noexcept;
  bool ComeBack() noexcept;
  [[nodiscard]] bool IsEmpty(std::int32_t phase) const noexcept;
  [[nodiscard]] const LoadedScript* ScriptOfIteration(std::uint64_t iteration) const noexcept;

  std::vector<LoadedScript> scripts_;  // prologue, then cycle
  std::vector<std::uint64_t> begins_;  // entries before each script
  std::size_t prologue_;
  const LoadedScript* script_ = nullptr;
  std::int32_t phase_ = LoadedScript::kNoPhase;  // of the last mark that the script has
  bool in_phase_ = false;                        // that was the last mark
  std::int32_t entry_ = 0;
  std::uint64_t iterations_ = 0;
  std::uint64_t turned_ = 0;  // scripts of the cycle that were left out
  std::uint32_t fence_depth_ = 0;
  const LoadedScript* left_ = nullptr;  // for the set-up's, while that is followed in the first iteration
  std::int32_t left_phase_ = LoadedScript::kNoPhase;
  std::int32_t left_entry_ = 0;
  std::int32_t set_up_phase_ = LoadedScript::kNoPhase;  // the last one that was gone to so
  std::array<bool, 256> explicit_seen_{};               // by kind
};

}  // namespace stalloc
