// Python stacks as reports show them. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "proto/model/trace.h"

namespace stalloc::planner {

// Stacks are numbered as TraceEvent::stack_plus_one; of 0 every text is empty.
class CallSites {
 public:
  // `head` must outlive this.
  explicit CallSites(const Trace& head) : head_(head) {}

  // "model.py:120 Block.forward": the innermost call outside of torch's and stalloc's own files, else the innermost.
  [[nodiscard]] std::string Site(std::uint32_t stack_plus_one) const;
  // All calls but stalloc's own, innermost first, a line each, with whole paths.
  [[nodiscard]] std::string Stack(std::uint32_t stack_plus_one) const;

 private:
  const Trace& head_;
};

// Numbers the call sites of stacks: two stacks of one site have the same. 0: no stack.
class SiteNumbers {
 public:
  // `calls` must outlive this.
  explicit SiteNumbers(const CallSites& calls) : calls_(calls) {}
  [[nodiscard]] std::uint32_t Of(std::uint32_t stack_plus_one);

 private:
  const CallSites& calls_;
  absl::flat_hash_map<std::uint32_t, std::uint32_t> by_stack_ = {{0, 0}};
  absl::flat_hash_map<std::string, std::uint32_t> by_site_;
};

// Gives the stacks that tables name small numbers, so that each text is written once. 0: no stack.
class StackIndex {
 public:
  [[nodiscard]] std::uint32_t Of(std::uint32_t stack_plus_one);
  // By number: TraceEvent::stack_plus_one.
  [[nodiscard]] const std::vector<std::uint32_t>& stacks() const { return stacks_; }

 private:
  std::vector<std::uint32_t> stacks_ = {0};
  absl::flat_hash_map<std::uint32_t, std::uint32_t> known_ = {{0, 0}};
};

}  // namespace stalloc::planner
