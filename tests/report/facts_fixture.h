// Facts of a trace from a compact script (tests/analysis/trace_script.h), with all that they refer to. Event k happens
// at k microseconds.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "planner/facts/block_facts.h"
#include "tests/analysis/trace_script.h"

namespace stalloc::planner {

class ScriptFacts {
 public:
  explicit ScriptFacts(const std::string& script) : ScriptFacts(TraceFromScript(script)) {}
  explicit ScriptFacts(Trace trace) : trace_(std::move(trace)) {
    for (std::size_t i = 0; i < trace_.events.size(); ++i) {
      trace_.events[i].time_ns = static_cast<std::int64_t>(i) * 1000;
    }
    clock_.Take(trace_);
    traced_ = TakeTrace(trace_).value();
    facts_ = std::make_unique<DeviceFacts>(traced_, traced_.devices.at(0), clock_);
  }

  [[nodiscard]] const DeviceFacts& operator*() const { return *facts_; }
  [[nodiscard]] const DeviceFacts* operator->() const { return facts_.get(); }
  [[nodiscard]] const Trace& trace() const { return trace_; }
  [[nodiscard]] const TracedRank& traced() const { return traced_; }
  [[nodiscard]] const TraceClock& clock() const { return clock_; }

 private:
  Trace trace_;
  TraceClock clock_;
  TracedRank traced_;
  std::unique_ptr<DeviceFacts> facts_;
};

}  // namespace stalloc::planner
