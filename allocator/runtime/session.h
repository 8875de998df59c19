// Session: what one process does under one Config: recorder or plan, a DeviceRuntime per device, the summary at exit.
//
// The composition root below the adapters. One per process; created by the adapter's install call, never destroyed before exit.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "allocator/runtime/config.h"
#include "allocator/runtime/device_runtime.h"

namespace stalloc {

class Session {
 public:
  struct Environment {
    Config config;
    Fingerprint fingerprint;   // what is known at install; devices add theirs by UpdateFingerprint
  };
  // Opens the trace file or loads and checks the plan. An error that makes planning impossible (no plan, foreign plan,
  // corrupt file, read-only directory, directory in use) is returned under STALLOC_STRICT; otherwise it is logged once and
  // the session is `degraded`: every request goes upstream.
  static Result<std::unique_ptr<Session>> Open(Environment environment);
  ~Session();

  // Builds the runtime of one device. Call once per device, before its first allocation. Checks the plan's fingerprint against
  // `device_fingerprint` (GPU name, memory, torch).
  DeviceRuntime* AddDevice(DeviceIndex device, Upstream* upstream, VmmDriver* driver, StreamFence* fence,
                           const Fingerprint& device_fingerprint);
  // Null if not added.
  [[nodiscard]] DeviceRuntime* Device(DeviceIndex device) const noexcept;

  // To the recorder and every device.
  void Mark(const stalloc::Mark& mark);

  void Flush();
  // {"mode": ..., "degraded": null or why, "devices": [{...RuntimeStats...}]}: see README for the keys.
  [[nodiscard]] std::string StatsJson() const;
  // Temporary name, then rename. Called at exit and by stalloc_flush.
  Status WriteSummary() const;

  [[nodiscard]] const Config& config() const noexcept;
  [[nodiscard]] const std::string& degraded() const noexcept;  // empty: fine

 private:
  struct Impl;
  explicit Session(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace stalloc
