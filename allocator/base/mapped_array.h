// MappedArray<T>: a fixed-size array straight from mmap, zero-filled, never from malloc.
//
// For memory that an allocator needs about itself: taking it cannot recurse into an allocator that replaced malloc, and
// pages that are never touched cost nothing. T must be fine as all zero bytes and need no destructor. Not thread-safe
// by itself. Running out of address space aborts: there is nothing to fall back to.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <type_traits>
#include <utility>

#include "allocator/base/check.h"

namespace stalloc {

template <typename T>
class MappedArray {
  static_assert(std::is_trivially_destructible_v<T>);

 public:
  MappedArray() noexcept = default;
  explicit MappedArray(std::size_t size) noexcept : size_(size) {
    if (size == 0) return;
    void* memory = mmap(nullptr, size * sizeof(T), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    STALLOC_CHECK(memory != MAP_FAILED, "mmap of %zu bytes", size * sizeof(T));
    // Accesses are scattered: huge pages cost fewer TLB misses.
    if (size * sizeof(T) >= kHugePage) (void)madvise(memory, size * sizeof(T), MADV_HUGEPAGE);
    data_ = static_cast<T*>(memory);
  }
  ~MappedArray() {
    if (data_ != nullptr) munmap(data_, size_ * sizeof(T));
  }
  MappedArray(MappedArray&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  MappedArray& operator=(MappedArray&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }

  // Touches every page of the first `count` elements now, so that no later access takes a page fault.
  void Populate(std::size_t count) noexcept {
    auto* bytes = reinterpret_cast<volatile char*>(data_);
    for (std::size_t at = 0; at < count * sizeof(T); at += 4096) bytes[at] = bytes[at];
  }
  void Populate() noexcept { Populate(size_); }

  [[nodiscard]] T& operator[](std::size_t index) noexcept { return data_[index]; }
  [[nodiscard]] const T& operator[](std::size_t index) const noexcept { return data_[index]; }
  [[nodiscard]] T* data() noexcept { return data_; }
  [[nodiscard]] const T* data() const noexcept { return data_; }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }

 private:
  static constexpr std::size_t kHugePage = std::size_t{2} << 20;

  T* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace stalloc
