#include "tests/engine/passing_memory.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <utility>

namespace stalloc {
namespace {

constexpr Bytes kPartBytes = Bytes{PassingMemory::kPart} * kBlockAlignment;

Offset OffsetOf(std::uint32_t part) { return part * kPartBytes; }
std::uint32_t PartAt(Offset offset) { return static_cast<std::uint32_t>(offset / kPartBytes); }
std::uint32_t PartsUpTo(Bytes bytes) { return PartAt(bytes + kPartBytes - 1); }

}  // namespace

PassingMemory::PassingMemory(Bytes mapped, Bytes limit, SimulatedDevice& device, std::uint64_t seed)
    : device_(device), limit_(limit), memory_(PartsUpTo(limit)), random_(seed), mapped_(mapped) {
  std::iota(memory_.begin(), memory_.end(), 0u);
}

void PassingMemory::Feed(PlanEngine* engine) {
  engine_ = engine;
  engine->SetBacking(this);
}

void PassingMemory::BeginToPass(Told told, Looks looks) {
  passes_ = true;
  told_ = told;
  looks_ = looks;
  for (auto part = static_cast<std::uint32_t>(random_() % 6); part < PartAt(mapped_); part += 6) {
    EXPECT_TRUE(engine_->Withdraw(OffsetOf(part), kPartBytes));
    memory_[part] = kNone;
    holes_.push_back(part);
  }
}

bool PassingMemory::Back(Offset offset, Bytes bytes, std::uint64_t /*now*/, MayTake /*may_take*/) noexcept {
  const std::lock_guard lock(mutex_);
  std::vector<PlanEngine::Passing> passings;
  for (const std::uint32_t hole : std::vector(holes_)) {
    if (hole >= PartAt(offset) && hole < PartsUpTo(offset + bytes)) (void)Choose(hole, passings);
  }
  if (passes_ && offset + bytes > mapped_ && random_() % 2 == 0) ChooseAbove(passings);
  Pass(passings);
  GrowTo(offset + bytes);
  return true;
}

void PassingMemory::PassSome() {
  const std::lock_guard lock(mutex_);
  std::vector<PlanEngine::Passing> passings;
  std::vector<std::uint32_t> holes = holes_;
  std::shuffle(holes.begin(), holes.end(), random_);
  holes.resize(std::min<std::size_t>(holes.size(), 1 + random_() % 4));
  for (const std::uint32_t hole : holes) (void)Choose(hole, passings);
  if (random_() % 8 == 0) ChooseAbove(passings);
  Pass(passings);
}

PlanEngine::Passing PassingMemory::FromTo(std::uint32_t from, std::uint32_t to) {
  return {OffsetOf(from), OffsetOf(to), kPartBytes};
}

bool PassingMemory::Choose(std::uint32_t to, std::vector<PlanEngine::Passing>& passings) {
  const std::uint32_t parts = PartAt(mapped_);
  for (int tries = 0; tries < 8 && parts > 0; ++tries) {
    const auto from = static_cast<std::uint32_t>(random_() % parts);
    if (!engine_->Withdraw(OffsetOf(from), kPartBytes)) continue;
    if (told_ == Told::kNothing || engine_->PrepareToPassOn(FromTo(from, to))) {
      passings.push_back(FromTo(from, to));
      return true;
    }
    engine_->Restore(OffsetOf(from), kPartBytes);
  }
  return false;
}

// Right above what is mapped; Pass sees to the rest.
void PassingMemory::ChooseAbove(std::vector<PlanEngine::Passing>& passings) {
  const std::uint32_t above = PartsUpTo(mapped_);
  if (OffsetOf(above + 1) <= limit_) (void)Choose(above, passings);
}

void PassingMemory::Pass(const std::vector<PlanEngine::Passing>& passings) {
  if (passings.empty()) return;
  if (told_ == Told::kAll) engine_->PassOn(passings);
  for (const PlanEngine::Passing& passing : passings) {
    const std::uint32_t from = PartAt(passing.from);
    const std::uint32_t to = PartAt(passing.to);
    if (looks_ == Looks::kAtMemory) {
      const std::uint32_t lo = MemoryAt(from * kPart);
      passed_in_use_ += device_.IsDone(lo, lo + kPart) ? 0 : 1;
      device_.ChangeAddress(lo, lo + kPart);
    }
    memory_[to] = std::exchange(memory_[from], kNone);
    std::erase(holes_, to);
    holes_.push_back(from);
    engine_->Restore(passing.to, passing.bytes);
    GrowTo(passing.to + passing.bytes);
    ++passed_;
  }
}

void PassingMemory::GrowTo(Bytes mapped) {
  mapped_ = std::max(mapped_, mapped);
  engine_->Extend(mapped_);
}

}  // namespace stalloc
