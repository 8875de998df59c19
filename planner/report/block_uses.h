// When operations used the blocks of a device, as far as the trace has recorded it (STALLOC_TRACE_USES). Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "planner/analysis/traced_rank.h"
#include "proto/model/block_use.h"

namespace stalloc::planner {

// Memory: eight bytes a use.
class BlockUses {
 public:
  struct Use {
    std::uint32_t event = 0;      // so many events of the trace came before
    std::uint32_t operation = 0;  // index into Trace::texts
  };

  // `uses`: of all devices, as the trace has them; those of blocks that the trace lacks are left out. `device` is one
  // of traced.devices. Only read here.
  BlockUses(const TracedRank& traced, const DeviceTrace& device, const std::vector<BlockUse>& uses);

  [[nodiscard]] bool empty() const { return uses_.empty(); }
  // Ascending by event; empty where none was seen. `block`: index into DeviceTrace::allocations.
  [[nodiscard]] std::span<const Use> Of(std::uint32_t block) const {
    return {uses_.data() + ends_[block], uses_.data() + ends_[block + std::size_t{1}]};
  }

 private:
  std::vector<Use> uses_;          // by block
  std::vector<std::size_t> ends_;  // of each block's predecessor, then of each block
};

}  // namespace stalloc::planner
