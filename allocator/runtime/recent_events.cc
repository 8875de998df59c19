#include "allocator/runtime/recent_events.h"

#include <algorithm>

namespace stalloc {

// Source of the order of atomic operations: H. Boehm, "Can seqlocks get along with programming language memory
// models?", MSPC 2012. All words are atomic, so that a slot which is overwritten while it is read is no data race.
void RecentEvents::Add(const RecentEvent& event) noexcept {
  const std::uint64_t number = next_.fetch_add(1, std::memory_order_relaxed);
  Slot& slot = slots_[number % kCapacity];
  slot.number.store(0, std::memory_order_relaxed);
  const std::uint64_t last = static_cast<std::uint64_t>(event.kind) << 32 | event.detail;
  const std::array<std::uint64_t, kWords> words = {static_cast<std::uint64_t>(event.time_ns), event.address,
                                                   event.bytes, event.stream, last};
  for (std::size_t i = 0; i < kWords; ++i) slot.words[i].store(words[i], std::memory_order_release);
  slot.number.store(number + 1, std::memory_order_release);
}

std::size_t RecentEvents::Copy(std::span<RecentEvent, kCapacity> events) const noexcept {
  const std::uint64_t end = next_.load(std::memory_order_relaxed);
  const std::uint64_t begin = end - std::min<std::uint64_t>(end, kCapacity);
  std::size_t copied = 0;
  for (std::uint64_t number = begin; number < end; ++number) {
    const Slot& slot = slots_[number % kCapacity];
    if (slot.number.load(std::memory_order_acquire) != number + 1) continue;
    std::array<std::uint64_t, kWords> words;
    for (std::size_t i = 0; i < kWords; ++i) words[i] = slot.words[i].load(std::memory_order_acquire);
    if (slot.number.load(std::memory_order_relaxed) != number + 1) continue;
    events[copied++] = {.time_ns = static_cast<std::int64_t>(words[0]),
                        .address = words[1],
                        .bytes = words[2],
                        .stream = words[3],
                        .kind = static_cast<RecentEvent::Kind>(words[4] >> 32),
                        .detail = static_cast<std::uint32_t>(words[4])};
  }
  return copied;
}

}  // namespace stalloc
