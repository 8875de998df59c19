// OpenTable<Value>: a hash table from 64-bit keys (addresses, offsets) to small values, for use inside an allocator.
//
// Open addressing with linear probing; erasing shifts the rest of the cluster back, so there are no tombstones and the
// cost does not creep up in a process that runs for weeks. Memory comes from mmap, never from malloc; nothing is
// allocated until the table outgrows the capacity that it was built for, and then it doubles. Keys: any but 2^64-1.
// Values: trivially copyable. Not thread-safe. Pointers to values are valid until the next Insert or Erase.
//
// Source: Knuth, TAOCP vol. 3, 6.4, algorithm R (deletion with linear probing).
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <type_traits>

#include "allocator/base/check.h"
#include "allocator/base/mapped_array.h"

namespace stalloc {

template <typename Value>
class OpenTable {
  static_assert(std::is_trivially_copyable_v<Value>);

 public:
  // Holds `capacity` entries without growing.
  explicit OpenTable(std::size_t capacity) noexcept { Reset(SlotsFor(capacity)); }

  // Adds or replaces. True when the key was not there before.
  bool Insert(std::uint64_t key, const Value& value) noexcept {
    std::size_t slot = FindSlot(key);
    const bool added = slots_[slot].stored == kEmpty;
    if (added) {
      if (size_ == limit_) {
        Grow();
        slot = FindSlot(key);
      }
      ++size_;
    }
    slots_[slot] = {Store(key), value};
    return added;
  }

  // Null when absent.
  [[nodiscard]] Value* Find(std::uint64_t key) noexcept {
    Slot& slot = slots_[FindSlot(key)];
    return slot.stored == kEmpty ? nullptr : &slot.value;
  }
  [[nodiscard]] const Value* Find(std::uint64_t key) const noexcept {
    const Slot& slot = slots_[FindSlot(key)];
    return slot.stored == kEmpty ? nullptr : &slot.value;
  }

  // Takes its memory now, so that no Insert waits for it.
  void Populate() noexcept { slots_.Populate(); }
  // The key's place will soon be looked at: it is fetched into the cache.
  void Prefetch(std::uint64_t key) const noexcept { __builtin_prefetch(&slots_[Home(Store(key))]); }

  // What Find found, without looking for it again. REQUIRES: nothing was inserted or erased since.
  void EraseFound(Value* found) noexcept {
    static_assert(offsetof(Slot, value) == sizeof(Slot::stored));
    CloseGap(
        static_cast<std::size_t>(reinterpret_cast<Slot*>(reinterpret_cast<std::uint64_t*>(found) - 1) - slots_.data()));
    --size_;
  }
  // The value that was there, or nullopt.
  std::optional<Value> Erase(std::uint64_t key) noexcept {
    const std::size_t slot = FindSlot(key);
    if (slots_[slot].stored == kEmpty) return std::nullopt;
    const Value value = slots_[slot].value;
    CloseGap(slot);
    --size_;
    return value;
  }

  void Clear() noexcept { Reset(slots_.size()); }

  // Calls visit(key, value) for every entry, in no particular order. `visit` must not change the table.
  template <typename Visit>
  void ForEach(Visit&& visit) const {
    for (std::size_t slot = 0; slot < slots_.size(); ++slot) {
      if (slots_[slot].stored != kEmpty) visit(slots_[slot].stored - 1, slots_[slot].value);
    }
  }

  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] bool empty() const noexcept { return size_ == 0; }
  // Entries that fit before the next growth.
  [[nodiscard]] std::size_t capacity() const noexcept { return limit_; }

 private:
  // Zero pages are an empty table: keys are stored plus one.
  static constexpr std::uint64_t kEmpty = 0;
  struct Slot {
    std::uint64_t stored;
    Value value;
  };

  static std::uint64_t Store(std::uint64_t key) noexcept {
    STALLOC_DCHECK(key != ~std::uint64_t{0});
    return key + 1;
  }
  // Full at 5/8: linear probing then looks at two or three neighbours on average, mostly in one cache line.
  static std::size_t LimitFor(std::size_t slots) noexcept { return slots / 8 * 5; }
  static std::size_t SlotsFor(std::size_t capacity) noexcept {
    std::size_t slots = 16;
    while (LimitFor(slots) < capacity) slots *= 2;
    return slots;
  }

  // Addresses differ in their middle bits: multiply, fold, multiply, keep the top.
  [[nodiscard]] std::size_t Home(std::uint64_t stored) const noexcept {
    constexpr std::uint64_t kGolden = 0x9e3779b97f4a7c15u;
    std::uint64_t hash = stored * kGolden;
    hash = (hash ^ (hash >> 32)) * kGolden;
    return static_cast<std::size_t>(hash >> shift_);
  }

  // The key's slot, or the empty one where it would go.
  [[nodiscard]] std::size_t FindSlot(std::uint64_t key) const noexcept {
    const std::uint64_t stored = Store(key);
    const std::size_t mask = slots_.size() - 1;
    std::size_t slot = Home(stored);
    while (slots_[slot].stored != kEmpty && slots_[slot].stored != stored) slot = (slot + 1) & mask;
    return slot;
  }

  // Moves later members of the cluster into the gap, as long as that keeps them reachable from their homes.
  void CloseGap(std::size_t gap) noexcept {
    const std::size_t mask = slots_.size() - 1;
    for (std::size_t next = (gap + 1) & mask; slots_[next].stored != kEmpty; next = (next + 1) & mask) {
      const std::size_t distance = (next - Home(slots_[next].stored)) & mask;
      if (distance >= ((next - gap) & mask)) {
        slots_[gap] = slots_[next];
        gap = next;
      }
    }
    slots_[gap].stored = kEmpty;
  }

  void Reset(std::size_t slots) noexcept {
    slots_ = MappedArray<Slot>(slots);
    shift_ = 64 - std::countr_zero(slots);
    limit_ = LimitFor(slots);
    size_ = 0;
  }

  [[gnu::noinline]] void Grow() noexcept {
    MappedArray<Slot> old = std::move(slots_);
    const std::size_t entries = size_;
    Reset(old.size() * 2);
    for (std::size_t slot = 0; slot < old.size(); ++slot) {
      if (old[slot].stored != kEmpty) slots_[FindSlot(old[slot].stored - 1)] = old[slot];
    }
    size_ = entries;
  }

  MappedArray<Slot> slots_;
  int shift_ = 0;
  std::size_t limit_ = 0;
  std::size_t size_ = 0;
};

}  // namespace stalloc
