// BitRows: sets of small integers as rows of bits, all of one width.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace stalloc::planner {

class BitRows {
 public:
  BitRows(std::size_t rows, std::size_t columns) : words_((columns + 63) / 64), bits_(rows * words_) {}

  void Set(std::size_t row, std::size_t column) {
    bits_[row * words_ + column / 64] |= std::uint64_t{1} << column % 64;
  }
  void Clear(std::size_t row, std::size_t column) {
    bits_[row * words_ + column / 64] &= ~(std::uint64_t{1} << column % 64);
  }
  // Adds what is in a row of another set of the same width.
  void Unite(std::size_t row, const BitRows& other, std::size_t other_row) {
    for (std::size_t word = 0; word < words_; ++word)
      bits_[row * words_ + word] |= other.bits_[other_row * words_ + word];
  }
  [[nodiscard]] bool Has(std::size_t row, std::size_t column) const {
    return (bits_[row * words_ + column / 64] >> column % 64 & 1) != 0;
  }
  [[nodiscard]] std::size_t words() const { return words_; }

  [[nodiscard]] bool Intersects(std::size_t row, std::span<const std::uint64_t> mask) const {
    for (std::size_t word = 0; word < words_; ++word) {
      if ((bits_[row * words_ + word] & mask[word]) != 0) return true;
    }
    return false;
  }

  // Visits, in ascending order, what is both in the row and in `mask` (words() words).
  template <typename Visit>
  void ForEachIn(std::size_t row, std::span<const std::uint64_t> mask, Visit visit) const {
    const std::uint64_t* bits = bits_.data() + row * words_;
    for (std::size_t word = 0; word < words_; ++word) {
      for (std::uint64_t left = bits[word] & mask[word]; left != 0; left &= left - 1) {
        visit(static_cast<std::uint32_t>(word * 64 + static_cast<std::size_t>(std::countr_zero(left))));
      }
    }
  }

  // Whether `accept` says yes to anything that is both in the row and in `mask`; calls in ascending order until then.
  template <typename Accept>
  [[nodiscard]] bool AnyIn(std::size_t row, std::span<const std::uint64_t> mask, Accept accept) const {
    const std::uint64_t* bits = bits_.data() + row * words_;
    for (std::size_t word = 0; word < words_; ++word) {
      for (std::uint64_t left = bits[word] & mask[word]; left != 0; left &= left - 1) {
        if (accept(static_cast<std::uint32_t>(word * 64 + static_cast<std::size_t>(std::countr_zero(left)))))
          return true;
      }
    }
    return false;
  }

 private:
  std::size_t words_;
  std::vector<std::uint64_t> bits_;
};

}  // namespace stalloc::planner
