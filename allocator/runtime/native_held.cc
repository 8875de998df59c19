#include "allocator/runtime/native_held.h"

namespace stalloc {

Bytes NativeHeld::Play(Bytes live, Bytes run_live) noexcept {
  if (!feed_.open()) return Estimate(0, run_live);
  const NativeFeed::Figures now = feed_.Play();
  known_.overflowed = known_.overflowed || !now.known;
  if (now.known) {
    known_.held = std::max(known_.held, now.peak);
    known_.live = std::max(known_.live, live);
  }
  return Estimate(now.peak, run_live);
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
  if (emptied_.load(std::memory_order_relaxed)) return present;
  if (known_.live == 0) return 0;
  const double grown = static_cast<double>(run_live) / static_cast<double>(known_.live);
  const auto held = static_cast<Bytes>(static_cast<double>(known_.held) * std::max(1.0, grown));
  return std::max({present, held, run_live});
}

}  // namespace stalloc
