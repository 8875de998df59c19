// What the plan says of streams: how many it has, which slots' bytes it hands from one to another (cold; pure); and
// which stream of the run stands for one of the plan's (details.md, Streams; not thread-safe; noexcept).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "allocator/engine/order/stream_clocks.h"
#include "proto/model/plan.h"

namespace stalloc {

// The streams of a plan's entries, numbered from 0: their ordinals are the trace's, which may have other devices'
// streams among them, and a file may hold any.
class PlanStreams {
 public:
  explicit PlanStreams(const DevicePlan& plan);

  [[nodiscard]] std::size_t size() const noexcept { return ordinals_.size(); }
  // kNoStream: no entry has it, or there are too many.
  [[nodiscard]] StreamIndex NumberOf(std::uint32_t ordinal) const;

 private:
  std::vector<std::uint32_t> ordinals_;  // ascending
};

// For each slot: LiveRecord::kPrivate where the plan has one stream, else kHandedOver if one of its stream edges begins
// there, else 0.
[[nodiscard]] std::vector<std::uint16_t> FlagsOfSlots(const DevicePlan& plan, const PlanStreams& streams);

// The first request that matches an entry of an ordinal binds it to its stream, the *home* (details.md, Homes). It
// moves only in an iteration in which the home has not requested yet; the per-thread default stream is nobody's.
class StreamBinding {
 public:
  // The home's handle while settled, else no stream's. All that the usual request looks at.
  [[nodiscard]] StreamHandle handle() const noexcept { return handle_; }
  [[nodiscard]] StreamIndex home() const noexcept { return home_; }
  void Used(std::uint64_t iteration) noexcept { iteration_ = iteration; }

  [[nodiscard]] bool unbound() const noexcept { return home_ == kNoStream; }
  [[nodiscard]] bool settled() const noexcept { return handle_ != kNone; }
  // The home's work before this stamp is what its traceless frees can belong to; 0 while it goes on making such.
  [[nodiscard]] std::uint64_t until() const noexcept { return until_; }

  [[nodiscard]] bool MayMove(std::uint64_t iteration) const noexcept { return settled() && iteration_ != iteration; }
  // REQUIRES: settled; from now on no block of the home is private (the caller sees to the live ones).
  void BeginMove(std::uint64_t stamp) noexcept {
    handle_ = kNone;
    until_ = stamp;
  }
  // REQUIRES: unbound, or `home` runs after the former home.
  void Settle(StreamIndex home, StreamHandle handle, std::uint64_t iteration) noexcept {
    handle_ = handle;
    home_ = home;
    until_ = 0;
    iteration_ = iteration;
  }

 private:
  static constexpr StreamHandle kNone = ~StreamHandle{0};

  StreamHandle handle_ = kNone;
  StreamIndex home_ = kNoStream;
  std::uint64_t until_ = 0;
  std::uint64_t iteration_ = 0;  // of the last request of the home
};

}  // namespace stalloc
