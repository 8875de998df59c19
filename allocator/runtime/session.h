// Session: what one process does under one Config: recorder or plan, a DeviceRuntime per device, the summary at exit.
//
// The composition root below the adapters. One per process (allocator/capi/global_session.h holds it); created by the
// adapter's install call, never destroyed before exit: at exit it closes the trace and writes the summary by itself.
// Thread-safe.
//
// Errors: what makes planning or tracing impossible is an Error from Open under STALLOC_STRICT=1; otherwise it is
// logged once as a warning, degraded() keeps it and every request goes upstream. After fork() the child's copy is
// inert: it serves from upstream, writes no file and touches no device.
#pragma once

#include <memory>
#include <string>

#include "allocator/runtime/config.h"
#include "allocator/runtime/device_runtime.h"

namespace stalloc {

// The version of this library, as the summary and the fingerprint carry it.
[[nodiscard]] const char* LibraryVersion() noexcept;

// Fingerprint::trace_mode of a trace whose device has no memory (allocator/torch/fake_device.h).
inline constexpr const char* kFakeTrace = "fake";

class Session {
 public:
  struct Environment {
    Config config;
    Fingerprint fingerprint;  // what is known at install; rank, world size, version and, but for kFakeTrace, mode come
                              // from config
  };
  // Opens the trace file or loads the plan and checks its fingerprint (rank, world size, torch). In Mode::kTorch it
  // does nothing.
  static Result<std::unique_ptr<Session>> Open(Environment environment);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // Builds the runtime of one device. Call once per device, before its first allocation; a second call returns the
  // first's. Checks the plan's fingerprint against `device_fingerprint` (GPU name, memory, torch). Null only under
  // STALLOC_STRICT=1, when the plan does not fit this device: failure() says why and the adapter must raise it. `watch`
  // is used if STALLOC_WATCH=1 requests it; null: this device cannot be watched. `pass_here`, `copies`, `graphs`: see
  // Parts.
  DeviceRuntime* AddDevice(DeviceIndex device, Upstream* upstream, VmmDriver* driver, StreamFence* fence,
                           const Fingerprint& device_fingerprint, WatchMemory* watch = nullptr,
                           PassHere pass_here = nullptr, DeviceCopies* copies = nullptr, GraphPools* graphs = nullptr);
  // Null if not added. Lock-free.
  [[nodiscard]] DeviceRuntime* Device(DeviceIndex device) const noexcept;

  // To the recorder and every device; one that is added later is notified of those that are still open.
  void Mark(const stalloc::Mark& mark);

  // The number of a text of the trace, for Name; -1 where there is none. Takes a lock.
  [[nodiscard]] std::int64_t Text(const std::string& text);
  // What lies in a block: see Recorder::Named.
  void Name(const void* block, const TensorPlace& tensor) noexcept;
  // An operation uses a block: see Recorder::Used.
  void Use(const void* block, UseKind kind, std::int64_t began_ns, std::uint32_t operation) noexcept;
  // A trace that waits (Config::trace_waits) begins; else nothing.
  void StartTrace();

  // Mode::kAuto: the devices that the plan in this file names take it up, between two iterations and on the thread of
  // the loop. An error, and nothing has changed, where the file is no plan of this run, or no device can take it.
  Status TakePlan(const std::string& path);
  // What TakePlan needs of this file, beforehand and on another thread than the loop's: for a plan of 100,000 requests
  // a second. An error as there, and TakePlan tries it again.
  Status PreparePlan(const std::string& path);

  // session_sleep.cc. Of that device, or of all (none named): figures of each. Where one does not sleep, none does. An
  // error, too, where there is no arena.
  [[nodiscard]] Result<std::vector<SleepFigures>> Sleep(std::optional<DeviceIndex> device, const SleepOrder& order);
  [[nodiscard]] Result<std::vector<SleepFigures>> Wake(std::optional<DeviceIndex> device, const TagNames& tags);
  // Copies bytes of a block that sleeps, of whichever device.
  [[nodiscard]] Status ReadAsleep(const void* pointer, Bytes bytes, void* to) const;
  [[nodiscard]] Status ReserveHostPool(std::optional<DeviceIndex> device, Bytes bytes);
  // Bytes, of all devices.
  Bytes ReleaseHostPools();

  // Sets the listener to reports of out-of-memory errors: OomReports::SetListener. Nothing where none are written.
  void ListenToOomReports(void (*listener)(const char* path)) noexcept;

  // Mode::kAuto: a trace anew, into this file, of what is requested from now on; blocks that live already are not in
  // it. An error, and nothing is traced, where the file cannot be made.
  Status TraceAgain(const std::string& path);

  // Mode::kAuto: which sizes the run requested until its trace was stopped (RunSignature::Json). "{}" in other modes.
  [[nodiscard]] std::string SignatureJson() const;
  // Mode::kAuto: the plan that serves is another run's (DeviceRuntime::DropPlan).
  void DropPlan() noexcept;
  // Mode::kAuto: the run is another one than was guessed: its summary and what it saw of its plan go to this directory.
  void MoveTo(const std::string& directory);

  // Trace events so far to the file.
  void Flush();
  // Gives the trace its orderly end; what comes later is not recorded, and the run goes on as before. Later calls do
  // nothing, nor does it without a trace.
  void StopTrace();
  // {"mode": ..., "degraded": null or why, ..., "devices": [{...}]}: docs/summary.md has the keys.
  [[nodiscard]] std::string StatsJson() const;
  // StatsJson to Config::SummaryPath(): temporary name, then rename. Nothing where nothing was allocated. Called at
  // exit and by stalloc_flush.
  Status WriteSummary() const;
  // Ends the recording (the trace file gets its orderly end) and writes the summary and, in Alloc mode, what was seen
  // of entries that vary to Config::ObservedPath(). Runs at exit; later calls do nothing.
  void Finish();

  [[nodiscard]] const Config& config() const noexcept;
  [[nodiscard]] std::string degraded() const;  // empty: fine
  [[nodiscard]] std::string failure() const;   // STALLOC_STRICT=1: what an adapter must raise; empty: nothing

  // In a forked child; the handler that Open registers calls it.
  void BecomeInert() noexcept;

 private:
  struct Impl;
  explicit Session(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace stalloc
