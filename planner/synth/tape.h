// Tape: writes allocations, frees and marks down as a trace. Sizes are rounded up as PyTorch does. Not thread-safe.
#pragma once

#include <cstdint>
#include <string>

#include "proto/model/trace.h"

namespace stalloc::planner {

class Tape {
 public:
  using Tensor = std::uint64_t;                       // allocation index
  static constexpr Tensor kNone = ~std::uint64_t{0};  // of no bytes: there is nothing to free

  enum Stream : std::uint32_t { kCompute = 0, kCommunication = 1 };

  // `communication`: whether the second stream exists; else everything runs on the first.
  explicit Tape(bool communication);

  Tensor Allocate(Bytes bytes, Stream stream = kCompute);
  // REQUIRES: allocated here and not freed yet, or kNone.
  void Free(Tensor tensor);
  void UsedBy(Tensor tensor, Stream stream);
  void AddMark(const Mark& mark);

  [[nodiscard]] bool communication() const { return communication_; }
  [[nodiscard]] std::uint64_t allocations() const { return trace_.allocations; }
  // Ends the tape.
  [[nodiscard]] Trace Take();

 private:
  void AddEvent(TraceEvent event);

  const bool communication_;
  Trace trace_;
};

// Marks both edges of what happens during its lifetime.
class MarkedScope {
 public:
  MarkedScope(Tape& tape, Mark mark);
  ~MarkedScope();
  MarkedScope(const MarkedScope&) = delete;
  MarkedScope& operator=(const MarkedScope&) = delete;

 private:
  Tape& tape_;
  Mark mark_;
};

}  // namespace stalloc::planner
