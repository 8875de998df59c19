#include "allocator/engine/loaded_script.h"

#include <algorithm>

#include "allocator/engine/stream_clocks.h"

namespace stalloc {
namespace {

constexpr std::int32_t kOfAll = -1;  // the index of a family

// FNV-1a.
class Hash {
 public:
  void Add(std::uint64_t value) noexcept {
    for (int byte = 0; byte < 8; ++byte) AddByte(static_cast<unsigned char>(value >> (8 * byte)));
  }
  void AddByte(unsigned char byte) noexcept { state_ = (state_ ^ byte) * 0x100000001b3ull; }
  [[nodiscard]] std::uint64_t value() const noexcept { return state_; }

 private:
  std::uint64_t state_ = 0xcbf29ce484222325ull;
};

}  // namespace

std::uint64_t MarkKey(const Mark& mark) noexcept { return MarkKey(mark, mark.index); }

std::uint64_t MarkKey(const Mark& mark, std::int32_t index) noexcept {
  Hash hash;
  hash.AddByte(static_cast<unsigned char>(mark.kind));
  hash.AddByte(static_cast<unsigned char>(mark.edge));
  if (mark.kind == MarkKind::kIteration) return hash.value();
  hash.AddByte(mark.automatic ? 1 : 0);
  hash.AddByte(static_cast<unsigned char>(mark.pass));
  hash.Add(static_cast<std::uint32_t>(mark.chunk));
  hash.Add(static_cast<std::uint32_t>(index));
  if (mark.kind == MarkKind::kLayer || mark.kind == MarkKind::kFence) {
    for (const char letter : mark.name) hash.AddByte(static_cast<unsigned char>(letter));
  }
  return hash.value();
}

LoadedScript::LoadedScript(const Script& script, const std::vector<Slot>& slots,
                           const std::vector<std::uint16_t>& slot_flags)
    : index_(script) {
  places_.reserve(script.entries.size());
  for (const Entry& entry : script.entries) {
    if (entry.slot == kNoSlot || entry.stream >= kNoStream) {
      places_.push_back({});
      continue;
    }
    const Slot& slot = slots[entry.slot];
    places_.push_back({static_cast<std::uint32_t>(slot.offset / kBlockAlignment),
                       static_cast<std::uint32_t>(slot.capacity / kBlockAlignment),
                       static_cast<std::uint16_t>(entry.stream), slot_flags[entry.slot]});
  }
  phases_.reserve(script.phases.size());
  for (const Phase& phase : script.phases) {
    phases_.push_back({MarkKey(phase.mark), static_cast<std::int32_t>(phase.first_entry)});
    if (phase.mark.kind != MarkKind::kMicrobatch) continue;
    const std::uint64_t key = MarkKey(phase.mark, kOfAll);
    const auto family = std::ranges::find(families_, key, &Family::key);
    if (family == families_.end()) {
      families_.push_back({key, phase.mark.index});
    } else {
      family->last = std::max(family->last, phase.mark.index);
    }
  }
}

std::int32_t LoadedScript::FindAlike(const Mark& mark, std::int32_t after) const noexcept {
  if (mark.kind != MarkKind::kMicrobatch) return kNoPhase;
  const auto family = std::ranges::find(families_, MarkKey(mark, kOfAll), &Family::key);
  if (family == families_.end() || mark.index <= family->last) return kNoPhase;
  const std::int32_t in_turn = family->last > 0 ? 1 + (mark.index - 1) % family->last : 0;
  return FindPhase(MarkKey(mark, in_turn), after);
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

}  // namespace stalloc
