// Exact repair of a window: whether some blocks of a packing fit below a ceiling while all others stay where they are.
// Thread-safe. Bytes.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "planner/packing/instance.h"
#include "planner/packing/work.h"

namespace stalloc::planner {

// Offsets parallel to `taken`; none if they cannot fit or the search of `node_limit` nodes does not decide it.
// `by_offset` holds every placed block, `offsets` is of all blocks. Adds to `work`.
[[nodiscard]] std::optional<std::vector<Offset>> FitWindow(const Instance& instance, std::span<const Offset> offsets,
                                                           std::span<const BlockIndex> by_offset,
                                                           std::span<const BlockIndex> taken, Bytes ceiling,
                                                           std::uint64_t node_limit, Work& work);

}  // namespace stalloc::planner
