// One trace, read once, and answers to questions about it: what `serve` does for each line. Bytes, nanoseconds. Not
// thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "planner/cli/timed_trace.h"
#include "planner/whatif/layer_units.h"
#include "planner/whatif/step_cost.h"
#include "proto/codec/json_object.h"

namespace stalloc::planner {

// The second trace is of the same program; `ratio`: its micro-batch over the first's.
struct SessionTraces {
  std::string path;
  std::string beside;  // empty: none
  double ratio = 0;
};

class Session {
 public:
  // Files are read by the first request that needs them.
  explicit Session(SessionTraces traces);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // The answer to a request, {"request": NAME, ...}, as one line of JSON. Names and keys: planner/README.md. Errors
  // name the file or the key; the session goes on.
  [[nodiscard]] absl::StatusOr<std::string> Answer(const std::string& line);

 private:
  struct Device;

  [[nodiscard]] absl::Status Read();
  [[nodiscard]] absl::Status ReadEvents();
  [[nodiscard]] TracedTimes TimesOf(const Device& device) const;
  // InvalidArgument: no iteration is marked.
  [[nodiscard]] absl::StatusOr<Device*> DeviceAt(std::size_t index);
  [[nodiscard]] absl::StatusOr<Device*> DeviceOf(JsonObject* request);
  [[nodiscard]] absl::StatusOr<std::string> Period(JsonObject* request);
  [[nodiscard]] absl::StatusOr<std::string> View(JsonObject* request);
  [[nodiscard]] absl::StatusOr<std::string> Traced(JsonObject* request);
  [[nodiscard]] absl::StatusOr<std::string> Cost(JsonObject* request);
  [[nodiscard]] absl::StatusOr<std::string> Seconds(JsonObject* request);
  [[nodiscard]] absl::StatusOr<std::string> Search(JsonObject* request);
  [[nodiscard]] absl::StatusOr<std::string> Play(JsonObject* request);
  [[nodiscard]] absl::StatusOr<std::string> PlanChoice(JsonObject* request);

  const SessionTraces traces_;
  std::optional<TimedTrace> timed_;
  std::optional<TimedTrace> beside_;
  std::optional<Trace> trace_;                    // with its events, which edited traces are made of
  std::vector<std::unique_ptr<Device>> devices_;  // of timed_, in its order
};

}  // namespace stalloc::planner
