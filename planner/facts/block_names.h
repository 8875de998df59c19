// The names of the tensors in a device's blocks, as reports show them. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "planner/analysis/lifetimes.h"

namespace stalloc::planner {

class BlockNames {
 public:
  // For the tensors in one block, by their places.
  struct Row {
    std::uint32_t first = 0;  // index into Trace::texts
    std::uint32_t count = 0;  // 0: no tensor in the block is named
    bool operator==(const Row&) const = default;
  };

  // Both must outlive this.
  BlockNames(const DeviceTrace& device, const std::vector<std::string>& texts) : device_(device), texts_(texts) {}

  // `allocation`: index into DeviceTrace::allocations.
  [[nodiscard]] Row Of(std::uint32_t allocation) const;
  // "GPT.blocks.0.up.weight", with "and 11 more" after it; empty without a name.
  [[nodiscard]] std::string Text(Row row) const;
  // The text of that number; empty: there is none.
  [[nodiscard]] std::string_view Text(std::uint32_t number) const {
    return number < texts_.size() ? std::string_view(texts_[number]) : std::string_view();
  }
  // The names of the first `most` tensors in the block, a line each.
  [[nodiscard]] std::string Lines(std::uint32_t allocation, std::size_t most) const;
  // The module that holds all tensors of the block, "GPT.blocks.0.up"; empty: none does, or no name is known.
  [[nodiscard]] std::string_view ModuleOf(std::uint32_t allocation) const;

 private:
  [[nodiscard]] std::string_view NameOf(const BlockTensor& tensor) const;

  const DeviceTrace& device_;
  const std::vector<std::string>& texts_;
};

}  // namespace stalloc::planner
