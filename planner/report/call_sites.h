// Python stacks as reports show them. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "proto/model/trace.h"

namespace stalloc::planner {

// Stacks are numbered as TraceEvent::stack_plus_one; of 0 every text is empty.
class CallSites {
 public:
  // `head` must outlive this.
  explicit CallSites(const Trace& head) : head_(head) {}

  // "model.py:120 Block.forward": the innermost call outside of torch's own files, else the innermost.
  [[nodiscard]] std::string Site(std::uint32_t stack_plus_one) const;
  // All calls, innermost first, a line each, with whole paths.
  [[nodiscard]] std::string Stack(std::uint32_t stack_plus_one) const;

 private:
  const Trace& head_;
};

}  // namespace stalloc::planner
