// GraphHandles: which capture a stream, a graph and an executable are of, by CUDA's handles as numbers.
//
// CUDA gives a handle out again once what it named is gone; the newest meaning counts. Thread-safe, noexcept, without
// heap memory. Where no executable is known, the question costs one relaxed load, else tens of nanoseconds.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>

#include "allocator/base/open_table.h"
#include "allocator/base/spin_mutex.h"
#include "allocator/graphs/graph_pool.h"

namespace stalloc {

class GraphHandles {
 public:
  using Handle = std::uint64_t;
  struct Capture {
    GraphPool* pool = nullptr;
    GraphId graph = 0;
  };

  void CaptureBegins(Handle stream, const Capture& capture) noexcept;
  // None: the capture is not known.
  std::optional<Capture> CaptureEnds(Handle stream) noexcept;

  // The pairs give the handle's capture from now on, and before; none: unknown. What has
  // neither a graph nor an executable any more is returned: it is launched no more.
  std::optional<Capture> SetGraph(Handle graph, const std::optional<Capture>& capture) noexcept;
  std::optional<Capture> SetExecutable(Handle executable, const std::optional<Capture>& capture) noexcept;

  [[nodiscard]] std::optional<Capture> OfGraph(Handle graph) const noexcept;
  [[nodiscard]] std::optional<Capture> OfExecutable(Handle executable) const noexcept {
    if (executable_count_.load(std::memory_order_relaxed) == 0) return std::nullopt;
    const std::lock_guard lock(mutex_);
    const Capture* const found = executables_.Find(executable);
    return found == nullptr ? std::nullopt : std::optional(*found);
  }

 private:
  static std::uint64_t KeyOf(const Capture& capture) noexcept {
    return std::uint64_t{capture.pool->number()} << 32 | capture.graph;
  }
  // REQUIRES: mutex_ is held. As SetGraph, for the one table.
  std::optional<Capture> Set(OpenTable<Capture>& table, Handle handle, const std::optional<Capture>& capture) noexcept;

  mutable SpinMutex mutex_;  // guards the tables
  OpenTable<Capture> streams_{16};
  OpenTable<Capture> graphs_{64};
  OpenTable<Capture> executables_{256};
  OpenTable<std::uint32_t> handle_counts_{256};  // of graphs and executables, by capture
  std::atomic<std::size_t> executable_count_{0};
};

}  // namespace stalloc
