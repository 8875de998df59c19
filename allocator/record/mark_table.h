// MarkTable: where a mark waits, with its name, for its event to pass the ring. Marks are rare; this path may lock and
// allocate. Thread-safe.
#pragma once

#include <cstdint>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "proto/model/trace.h"

namespace stalloc {

class MarkTable {
 public:
  // Returns the id to send through the ring.
  [[nodiscard]] std::uint64_t Put(const Mark& mark) {
    const std::lock_guard lock(mutex_);
    const std::uint64_t id = next_++;
    waiting_.emplace(id, mark);
    return id;
  }

  // REQUIRES: `id` was put and not yet taken.
  [[nodiscard]] Mark Take(std::uint64_t id) {
    const std::lock_guard lock(mutex_);
    return std::move(waiting_.extract(id).mapped());
  }

 private:
  std::mutex mutex_;
  std::uint64_t next_ = 0;
  std::unordered_map<std::uint64_t, Mark> waiting_;
};

}  // namespace stalloc
