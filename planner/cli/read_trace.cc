#include "planner/cli/read_trace.h"

#include <cstdint>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"

namespace stalloc::planner {
namespace {

// From the share of the file that is read; a little more, so that no column moves at the end.
std::uint64_t ExpectedEvents(std::uint64_t events, const TraceReader& reader) {
  const double share = static_cast<double>(reader.bytes_read()) / static_cast<double>(reader.bytes_total());
  return static_cast<std::uint64_t>(1.1 * static_cast<double>(events) / share);
}

}  // namespace

absl::StatusOr<TracedRank> ReadTracedRank(const std::string& path, const ReadProgress& progress,
                                          const ChunkObserver& observer) {
  const absl::StatusOr<std::unique_ptr<TraceReader>> reader = TraceReader::Open(path);
  if (!reader.ok()) return reader.status();
  LifetimeBuilder lifetimes;
  Trace trace;
  while (true) {
    const absl::StatusOr<bool> more = (*reader)->ReadChunk(&trace);
    if (!more.ok()) return more.status();
    if (!*more) return FinishReading(std::move(lifetimes), std::move(trace));
    if (lifetimes.events() == 0) lifetimes.Expect(ExpectedEvents(trace.events.size(), **reader));
    if (absl::Status status = lifetimes.Take(trace); !status.ok()) {
      return absl::Status(status.code(), absl::StrCat(path, ": ", status.message()));
    }
    if (observer) observer(trace, (*reader)->uses());
    trace.events.clear();
    if (progress) progress((*reader)->bytes_read(), (*reader)->bytes_total());
  }
}

}  // namespace stalloc::planner
