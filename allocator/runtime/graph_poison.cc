#include "allocator/runtime/graph_poison.h"

#include <iterator>
#include <new>
#include <set>

namespace stalloc {
namespace {

constexpr DriverStatus kNoHostMemoryForFill{DriverCode::kOutOfMemory, 0, "new"};

}  // namespace

bool GraphPoison::AfterLaunch(const GraphPool& pool, GraphId graph, StreamHandle stream) noexcept {
  try {
    return Report(pool, Fill(pool.catalog(), pool.catalog().IdleAfter(graph), stream));
  } catch (const std::bad_alloc&) {
    return Report(pool, kNoHostMemoryForFill);
  }
}

bool GraphPoison::BeforeLending(const GraphPool& pool, StreamHandle stream) noexcept {
  try {
    DriverStatus status = Fill(pool.catalog(), pool.catalog().NeverGiven(), stream);
    if (status.ok()) status = driver_.Synchronize();
    return Report(pool, status);
  } catch (const std::bad_alloc&) {
    return Report(pool, kNoHostMemoryForFill);
  }
}

// The driver fills within one of its allocations at a time, and ranges that touch may lie in several: what it refuses
// is filled in parts. No block lies in two, so that parts end where blocks begin.
DriverStatus GraphPoison::Fill(const PoolCatalog& catalog, std::span<const ByteRange> ranges, StreamHandle stream) {
  for (const ByteRange& range : ranges) {
    if (Fill(range, stream).ok()) continue;
    std::set<std::uint64_t> begins = {range.begin, range.end};
    for (const PoolBlock& block : catalog.Requests()) {
      if (block.address > range.begin && block.address < range.end) begins.insert(block.address);
    }
    for (auto begin = begins.begin(), end = std::next(begin); end != begins.end(); begin = end++) {
      if (const DriverStatus status = Fill(ByteRange{*begin, *end}, stream); !status.ok()) return status;
    }
  }
  return {};
}

DriverStatus GraphPoison::Fill(const ByteRange& range, StreamHandle stream) noexcept {
  const Bytes bytes = range.end - range.begin;
  const DriverStatus status = driver_.Fill(range.begin, bytes, kByte, stream);
  if (status.ok()) filled_.fetch_add(bytes, std::memory_order_relaxed);
  return status;
}

bool GraphPoison::Report(const GraphPool& pool, const DriverStatus& status) noexcept {
  if (!status.ok() && failures_.Pass()) {
    Log(LogSeverity::kWarning,
        "device %d: STALLOC_GRAPHS=poison: what graphs of pool %u leave idle is not filled, and not lent: %s gave %d. "
        "This run proves nothing of that pool",
        device_, pool.number(), status.call, status.native);
  }
  if (status.ok() && filled_bytes() > 0 && !is_reported_.exchange(true, std::memory_order_relaxed)) {
    Log(LogSeverity::kInfo,
        "device %d: STALLOC_GRAPHS=poison: what graphs leave idle in their pools is filled with 0xff", device_);
  }
  return status.ok();
}

}  // namespace stalloc
