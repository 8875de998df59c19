#include "allocator/runtime/native_held.h"

#include <utility>

#include "allocator/base/mutex.h"

namespace stalloc {

// Graphs' pools are mostly filled right after, where what was held before them is gone.
void NativeHeld::EmptiedCache(Bytes apart) noexcept {
  emptied_.store(true, std::memory_order_relaxed);
  emptied_now_.store(true, std::memory_order_relaxed);
  if (!feed_.open()) return;
  const LockGuard lock(emptying_);
  const Bytes peak = feed_.Play().peak;
  before_emptied_ = std::max(before_emptied_, peak);
  with_apart_ = std::max(with_apart_, peak + apart);
  feed_.EmptiedCache();
  (void)feed_.Play();  // the next peak begins with what is left
}

Bytes NativeHeld::Play(Bytes live, Bytes run_live, Bytes apart) noexcept {
  const bool emptied_now = emptied_now_.exchange(false, std::memory_order_relaxed);
  since_emptied_ = emptied_now ? 0 : std::max(since_emptied_, live);
  if (!feed_.open()) return Estimate(0, run_live);
  const LockGuard lock(emptying_);
  const NativeFeed::Figures now = feed_.Play();
  const Bytes peak = std::max(now.peak, std::exchange(before_emptied_, 0));
  with_apart_ = std::max(with_apart_, now.peak + apart);
  known_.overflowed = known_.overflowed || !now.known;
  if (now.known) {
    known_.held = std::max(known_.held, peak);
    known_.with_apart = std::max(known_.with_apart, with_apart_);
    known_.live = std::max(known_.live, live);
    since_emptied_ = std::max(since_emptied_, now.peak);
  }
  return Estimate(peak, run_live);
}

bool NativeHeld::Decide(bool fits, Bytes held) noexcept {
  if (!feed_.open()) {
    ++closed_for_;
    return !fits && held > held_then_ + held_then_ / 50 && closed_for_ >= pause_ && !known_.overflowed;
  }
  ++watched_;
  fitting_ = fits ? fitting_ + 1 : 0;
  if (known_.overflowed || fitting_ >= kFit || watched_ >= kLongest) Close(held);
  return false;
}

void NativeHeld::Close(Bytes held) noexcept {
  feed_.Close();
  held_then_ = held;
  watched_ = fitting_ = 0;
  closed_for_ = 0;
  pause_ = std::min(2 * pause_, kMostPause);
}

Bytes NativeHeld::Estimate(Bytes present, Bytes run_live) const noexcept {
  if (known_.overflowed) return 0;
  if (emptied_.load(std::memory_order_relaxed)) return present == 0 ? 0 : std::max(present, since_emptied_);
  if (known_.live == 0) return 0;
  const double grown = static_cast<double>(run_live) / static_cast<double>(known_.live);
  const auto held = static_cast<Bytes>(static_cast<double>(known_.held) * std::max(1.0, grown));
  return std::max({present, held, run_live});
}

}  // namespace stalloc
