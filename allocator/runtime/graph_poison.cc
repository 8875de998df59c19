#include "allocator/runtime/graph_poison.h"

#include <new>

namespace stalloc {
namespace {

constexpr DriverStatus kNoHostMemoryForFill{DriverCode::kOutOfMemory, 0, "new"};

}  // namespace

bool GraphPoison::AfterLaunch(const GraphPool& pool, GraphId graph, StreamHandle stream) noexcept {
  try {
    return Tell(pool, Fill(pool.catalog().IdleAfter(graph), stream));
  } catch (const std::bad_alloc&) {
    return Tell(pool, kNoHostMemoryForFill);
  }
}

bool GraphPoison::BeforeLending(const GraphPool& pool, StreamHandle stream) noexcept {
  try {
    DriverStatus status = Fill(pool.catalog().NeverGiven(), stream);
    if (status.ok()) status = driver_.Synchronize();
    return Tell(pool, status);
  } catch (const std::bad_alloc&) {
    return Tell(pool, kNoHostMemoryForFill);
  }
}

DriverStatus GraphPoison::Fill(std::span<const ByteRange> ranges, StreamHandle stream) noexcept {
  for (const ByteRange& range : ranges) {
    const Bytes bytes = range.end - range.begin;
    if (const DriverStatus status = driver_.Fill(range.begin, bytes, kByte, stream); !status.ok()) return status;
    filled_.fetch_add(bytes, std::memory_order_relaxed);
  }
  return {};
}

bool GraphPoison::Tell(const GraphPool& pool, const DriverStatus& status) noexcept {
  if (!status.ok() && failures_.Pass()) {
    Log(LogSeverity::kWarning,
        "device %d: STALLOC_GRAPHS=poison: what graphs of pool %u leave idle is not filled, and not lent: %s gave %d. "
        "This run proves nothing of that pool",
        device_, pool.number(), status.call, status.native);
  }
  if (status.ok() && filled_bytes() > 0 && !is_told_.exchange(true, std::memory_order_relaxed)) {
    Log(LogSeverity::kInfo,
        "device %d: STALLOC_GRAPHS=poison: what graphs leave idle in their pools is filled with 0xff", device_);
  }
  return status.ok();
}

}  // namespace stalloc
