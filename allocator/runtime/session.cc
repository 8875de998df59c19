#include "allocator/runtime/session.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include "allocator/base/log.h"
#include "allocator/base/mutex.h"
#include "allocator/runtime/device_plans.h"
#include "allocator/runtime/files.h"
#include "allocator/runtime/fingerprint_check.h"
#include "allocator/runtime/oom_report.h"
#include "allocator/runtime/open_marks.h"
#include "allocator/runtime/planned_space.h"
#include "allocator/runtime/process_hooks.h"
#include "allocator/runtime/run_signature.h"
#include "allocator/runtime/stats_json.h"
#include "proto/codec/observed_text.h"
#include "proto/codec/plan_reader.h"

namespace stalloc {
namespace {

constexpr DeviceIndex kMostDevices = 256;

// What `device` knows replaces what `known` says.
void Merge(const Fingerprint& device, Fingerprint* known) {
  if (!device.torch_version.empty()) known->torch_version = device.torch_version;
  if (!device.device_name.empty()) known->device_name = device.device_name;
  if (device.device_bytes != 0) known->device_bytes = device.device_bytes;
  if (!device.driver_version.empty()) known->driver_version = device.driver_version;
}

void Complete(const Config& config, Fingerprint* fingerprint) {
  fingerprint->rank = config.rank;
  fingerprint->local_rank = config.local_rank;
  fingerprint->world_size = config.world_size;
  fingerprint->stalloc_version = LibraryVersion();
  if (fingerprint->trace_mode.empty()) fingerprint->trace_mode = config.trace_fast ? "fast" : "exact";
}

}  // namespace

struct Session::Impl {
  Config config;                            // what was requested; Current() has where the run is now
  std::unique_ptr<RunSignature> signature;  // Auto
  std::unique_ptr<OomReports> reports;      // where STALLOC_OOM_REPORT names a directory
  std::atomic<bool> inert{false};
  std::atomic<bool> finished{false};
  std::atomic<Recorder*> recorder{nullptr};  // the last one; closed by Finish

  // Devices are looked up without a lock and only ever added; slot 0 is the CPU.
  std::array<std::atomic<DeviceRuntime*>, kMostDevices + 1> by_index{};

  mutable Mutex mutex;  // guards all below
  Fingerprint fingerprint STALLOC_GUARDED_BY(mutex);
  std::vector<std::unique_ptr<Recorder>> recorders
      STALLOC_GUARDED_BY(mutex);  // there as long as the devices: other threads may call any of them
  std::optional<DevicePlans> plans STALLOC_GUARDED_BY(mutex);  // Alloc, Auto
  std::string moved_to STALLOC_GUARDED_BY(mutex);  // the run's directory, where it is not the configured one
  std::string degraded STALLOC_GUARDED_BY(mutex);
  std::string failure STALLOC_GUARDED_BY(mutex);
  struct Device {
    DeviceIndex index;
    std::unique_ptr<DeviceRuntime> runtime;
  };
  std::vector<Device> devices STALLOC_GUARDED_BY(mutex);

  // A plan that will be taken up.
  struct Prepared {
    std::string path;
    std::vector<std::pair<DeviceIndex, std::shared_ptr<PlannedSpace>>> spaces;
  };
  Mutex preparing;  // held before `mutex`; guards the next
  std::optional<Prepared> prepared STALLOC_GUARDED_BY(preparing);

  // Held while a mark goes to the devices, and after `mutex` while a device is added: each is notified of every mark
  // once.
  Mutex marks_mutex;
  OpenMarks open_marks STALLOC_GUARDED_BY(marks_mutex);

  [[nodiscard]] Config Current() const STALLOC_REQUIRES(mutex) {
    Config now = config;
    if (!moved_to.empty()) now.model_info_path = moved_to;
    return now;
  }
  Status OpenTrace(const std::string& path) STALLOC_REQUIRES(mutex);
  // Null: nobody records. A closed one ignores all notices.
  [[nodiscard]] Recorder* Recording() const noexcept {
    return inert.load(std::memory_order_relaxed) ? nullptr : recorder.load(std::memory_order_acquire);
  }
  [[nodiscard]] Fingerprint OfPlan() const STALLOC_REQUIRES(mutex);
  [[nodiscard]] static Result<Plan> ReadOwnPlan(const std::string& path, const Fingerprint& expected);
  Status Prepare(const std::string& path) STALLOC_REQUIRES(preparing) STALLOC_EXCLUDES(mutex);
  Status LoadPlan() STALLOC_REQUIRES(mutex);
  Status LoadPlanOrTrace() STALLOC_REQUIRES(mutex);
  Status TraceInstead(const std::string& why) STALLOC_REQUIRES(mutex);
  void OpenReports();
  [[nodiscard]] const DevicePlan* PlanOf(DeviceIndex device) STALLOC_REQUIRES(mutex);
  void Degrade(const std::string& why, bool logged) STALLOC_REQUIRES(mutex);
  void WriteObserved();
  [[nodiscard]] bool HasAllocated() const;
  DeviceRuntime* Build(DeviceIndex device, Upstream* upstream, VmmDriver* driver, StreamFence* fence,
                       WatchMemory* watch, PassHere pass_here, DeviceCopies* copies, GraphPools* graphs)
      STALLOC_REQUIRES(mutex);
  template <typename Visit>
  void ForEachDevice(Visit&& visit) {
    for (std::atomic<DeviceRuntime*>& slot : by_index) {
      if (DeviceRuntime* const device = slot.load(std::memory_order_acquire); device != nullptr) visit(*device);
    }
  }
};

// Open ----------------------------------------------------------------------------------------------------------------

Status Session::Impl::OpenTrace(const std::string& path) {
  Result<std::unique_ptr<Recorder>> opened =
      Recorder::Open({.path = path,
                      .fingerprint = fingerprint,
                      .waits = config.trace_waits,
                      .max_events = config.trace_max_events,
                      .stacks = {.every = config.trace_stacks_every, .least = config.trace_stacks_least}});
  if (!opened.ok()) return Error{"cannot trace: " + opened.error()};
  recorders.push_back(std::move(opened).value());
  recorder.store(recorders.back().get(), std::memory_order_release);
  return Ok{};
}

// What the plan's fingerprint should say: this run's, with the number of the rank whose plan it is.
Fingerprint Session::Impl::OfPlan() const {
  Fingerprint expected = fingerprint;
  expected.rank = config.plan_rank.value_or(config.rank);
  return expected;
}

Result<Plan> Session::Impl::ReadOwnPlan(const std::string& path, const Fingerprint& expected) {
  Result<Plan> read = ReadPlan(path);
  if (!read.ok()) return Error{"no usable plan: " + read.error()};
  const std::vector<std::string> differences = Differences(read.value().fingerprint, expected);
  if (!differences.empty()) return Error{"the plan " + path + " was made for another run: " + Join(differences)};
  return read;
}

Status Session::Impl::LoadPlan() {
  Result<Plan> read = ReadOwnPlan(config.PlanPath(), OfPlan());
  if (!read.ok()) return Error{read.error()};
  const std::string script = ScriptDifference(read.value().fingerprint, fingerprint);
  if (!script.empty()) {
    Log(LogSeverity::kWarning, "the plan was traced with another program (%s); it is used all the same",
        script.c_str());
  }
  plans.emplace(std::move(read).value(), config.plan_rank.value_or(config.rank) != config.rank);
  return Ok{};
}

// A plan from an earlier start of the same run serves this one from its beginning.
Status Session::Impl::LoadPlanOrTrace() {
  std::error_code unknown;
  if (!std::filesystem::exists(config.PlanPath(), unknown)) return OpenTrace(config.FirstTracePath());
  const Status loaded = LoadPlan();
  if (!loaded.ok()) return TraceInstead(loaded.error());
  if (config.plan_trust != PlanTrust::kOwn) {
    const Status traced = OpenTrace(config.FirstTracePath());  // needed only if the plan proves to be another run's
    if (!traced.ok()) Log(LogSeverity::kInfo, "%s; the plan serves all the same", traced.error().c_str());
  }
  return loaded;
}

// Mode::kAuto: the plan that there is serves nobody here. REQUIRES: as OpenTrace.
Status Session::Impl::TraceInstead(const std::string& why) {
  Log(LogSeverity::kWarning, "%s; it is made anew", why.c_str());
  plans.reset();
  return recorders.empty() ? OpenTrace(config.FirstTracePath()) : Ok{};
}

void Session::Impl::OpenReports() {
  if (config.oom_report.empty()) return;
  if (const Status made = MakeParentDirectories(config.oom_report + "/"); !made.ok()) {
    Log(LogSeverity::kWarning, "no out-of-memory reports (STALLOC_OOM_REPORT): %s", made.error().c_str());
    return;
  }
  reports = std::make_unique<OomReports>(config.oom_report, config.rank);
}

Result<std::unique_ptr<Session>> Session::Open(Environment environment) {
  auto impl = std::make_unique<Impl>();
  impl->mutex.AssertHeld();  // nobody else knows it yet
  impl->config = std::move(environment.config);
  impl->fingerprint = std::move(environment.fingerprint);
  const Config& config = impl->config;
  SetLogLevel(config.log_level);
  SetLogRank(config.rank);
  SetLogLaunch(config.log_level == LogSeverity::kDebug ? 0 : config.launch);
  Complete(config, &impl->fingerprint);
  Status status = Ok{};
  if (config.mode == Mode::kTrace) status = impl->OpenTrace(config.TracePath());
  if (config.mode == Mode::kAlloc) status = impl->LoadPlan();
  if (config.mode == Mode::kAuto) {
    impl->signature = std::make_unique<RunSignature>();
    status = impl->LoadPlanOrTrace();
  }
  if (!status.ok()) {
    if (config.strict) return Error{status.error()};
    impl->Degrade(status.error(), /*logged=*/false);
  }
  if (config.mode != Mode::kTorch) impl->OpenReports();
  std::unique_ptr<Session> session(new Session(std::move(impl)));
  if (config.mode != Mode::kTorch) WatchProcess(session.get());
  return session;
}

Session::Session(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Session::~Session() {
  if (impl_->config.mode != Mode::kTorch) UnwatchProcess(this);
}

// REQUIRES: mutex is held, or nobody else knows the session yet.
void Session::Impl::Degrade(const std::string& why, bool logged) {
  if (degraded.empty()) degraded = why;
  if (config.strict && failure.empty()) failure = why;
  if (logged || config.strict) return;
  Log(LogSeverity::kWarning, "%s; the run goes on %s", why.c_str(),
      config.mode == Mode::kTrace ? "untraced" : "unplanned");
}

// Devices -------------------------------------------------------------------------------------------------------------

// The plan's part for this device; null, and it is said why, where there is none or it does not fit. REQUIRES: mutex is
// held, there is a plan.
const DevicePlan* Session::Impl::PlanOf(DeviceIndex device) {
  const std::string other = DeviceDifference(plans->plan(), device);
  if (plans->taken() && !other.empty()) {
    Log(LogSeverity::kWarning, "the plan %s serves another device; what is allocated on this one is not planned (%s)",
        config.PlanPath().c_str(), other.c_str());
    return nullptr;
  }
  std::vector<std::string> differences = Differences(plans->plan().fingerprint, OfPlan());
  if (differences.empty()) {
    if (const DevicePlan* const found = plans->Take(device); found != nullptr) return found;
  }
  if (!other.empty()) differences.push_back(other);
  std::string why = "the plan " + config.PlanPath() + " was made for another device: " + Join(differences);
  if (config.mode == Mode::kAuto) {
    const Status traced = TraceInstead(why);
    if (traced.ok()) return nullptr;
    why = traced.error();
  }
  Degrade(why, /*logged=*/false);
  return nullptr;
}

// REQUIRES: mutex is held.
DeviceRuntime* Session::Impl::Build(DeviceIndex device, Upstream* upstream, VmmDriver* driver, StreamFence* fence,
                                    WatchMemory* watch, PassHere pass_here, DeviceCopies* copies, GraphPools* graphs) {
  if (config.watch && watch == nullptr) {
    Log(LogSeverity::kWarning, "device %d: its blocks cannot be watched (STALLOC_WATCH=1)", device);
  }
  DeviceRuntime::Parts parts{.device = device,
                             .upstream = upstream,
                             .driver = driver,
                             .fence = fence,
                             .recorder = nullptr,
                             .plan = nullptr,
                             .dynamic = config.dynamic != "0",
                             .moves_at_marks = config.test_moves,
                             .keep_free = config.keep_free.value_or(FreeMemory::kDefaultKeep),
                             .exact = !config.trace_fast && fingerprint.trace_mode != kFakeTrace,
                             .limit_bytes = config.memory_limit,
                             .reports = reports.get(),
                             .watch = config.watch ? watch : nullptr,
                             .copies = copies,
                             .pass_here = pass_here,
                             .signature = signature.get(),
                             .doubts = config.plan_trust != PlanTrust::kOwn,
                             .maps_late = config.plan_trust == PlanTrust::kGuessed,
                             .graphs = graphs,
                             .shares_graphs = config.shares_graphs,
                             .poisons_graphs = config.poisons_graphs};
  if (plans.has_value()) parts.plan = PlanOf(device);
  if (!failure.empty()) return nullptr;
  parts.recorder = recorder.load(std::memory_order_acquire);
  parts.replaceable = config.mode == Mode::kAuto;
  parts.awaits_plan = config.mode == Mode::kAuto && parts.recorder != nullptr;
  auto runtime = std::make_unique<DeviceRuntime>(parts);
  if (!runtime->degraded().empty()) Degrade(runtime->degraded(), /*logged=*/true);
  if (!failure.empty()) return nullptr;
  if (config.held_limit != 0) runtime->SetHeldLimit(config.held_limit);
  devices.push_back({device, std::move(runtime)});
  return devices.back().runtime.get();
}

DeviceRuntime* Session::AddDevice(DeviceIndex device, Upstream* upstream, VmmDriver* driver, StreamFence* fence,
                                  const Fingerprint& device_fingerprint, WatchMemory* watch, PassHere pass_here,
                                  DeviceCopies* copies, GraphPools* graphs) {
  Impl& self = *impl_;
  const LockGuard lock(self.mutex);
  if (DeviceRuntime* const known = Device(device); known != nullptr) return known;
  Merge(device_fingerprint, &self.fingerprint);
  if (!self.recorders.empty()) self.recorders.back()->UpdateFingerprint(self.fingerprint);
  DeviceRuntime* const runtime = self.Build(device, upstream, driver, fence, watch, pass_here, copies, graphs);
  if (runtime == nullptr) return nullptr;
  if (self.inert.load(std::memory_order_relaxed)) runtime->BecomeInert();
  const LockGuard marks_lock(self.marks_mutex);
  for (const stalloc::Mark& mark : self.open_marks.marks()) runtime->OnMark(mark);
  if (device >= kCpuDevice && device < kMostDevices) {
    self.by_index[static_cast<std::size_t>(device + 1)].store(runtime, std::memory_order_release);
  }
  return runtime;
}

DeviceRuntime* Session::Device(DeviceIndex device) const noexcept {
  if (device < kCpuDevice || device >= kMostDevices) return nullptr;
  return impl_->by_index[static_cast<std::size_t>(device + 1)].load(std::memory_order_acquire);
}

// Marks and files -----------------------------------------------------------------------------------------------------

void Session::Mark(const stalloc::Mark& mark) {
  if (impl_->inert.load(std::memory_order_relaxed)) return;
  if (Recorder* const recorder = impl_->Recording(); recorder != nullptr) recorder->Marked(mark);
  const LockGuard lock(impl_->marks_mutex);
  impl_->open_marks.See(mark);
  if (impl_->signature != nullptr) impl_->signature->See(mark);
  impl_->ForEachDevice([&](DeviceRuntime& device) { device.OnMark(mark); });
}

void Session::ListenToOomReports(void (*listener)(const char* path)) noexcept {
  if (impl_->reports != nullptr) impl_->reports->SetListener(listener);
}

std::int64_t Session::Text(const std::string& text) {
  Recorder* const recorder = impl_->Recording();
  return recorder == nullptr ? -1 : static_cast<std::int64_t>(recorder->Text(text));
}

void Session::Name(const void* block, const TensorPlace& tensor) noexcept {
  if (Recorder* const recorder = impl_->Recording(); recorder != nullptr) recorder->Named(block, tensor);
}

void Session::Use(const void* block, UseKind kind, std::int64_t began_ns, std::uint32_t operation) noexcept {
  if (Recorder* const recorder = impl_->Recording(); recorder != nullptr)
    recorder->Used(block, kind, began_ns, operation);
}

void Session::StartTrace() {
  if (Recorder* const recorder = impl_->Recording(); recorder != nullptr) recorder->Begin();
}

// REQUIRES: `preparing` is held, `mutex` is not: others go on meanwhile.
Status Session::Impl::Prepare(const std::string& path) {
  prepared.reset();
  Fingerprint expected;
  {
    const LockGuard lock(mutex);
    expected = OfPlan();
  }
  Result<Plan> read = ReadOwnPlan(path, expected);
  if (!read.ok()) return Error{read.error()};
  Prepared made{.path = path, .spaces = {}};
  std::string why_not = "the plan " + path + " is of none of this run's devices";
  for (const DevicePlan& plan : read.value().devices) {
    if (plan.device < kCpuDevice || plan.device >= kMostDevices) continue;
    DeviceRuntime* const device = by_index[static_cast<std::size_t>(plan.device + 1)].load(std::memory_order_acquire);
    if (device == nullptr) continue;
    std::string why;
    std::shared_ptr<PlannedSpace> space = device->PreparePlan(plan, &why);
    if (space != nullptr) {
      made.spaces.emplace_back(plan.device, std::move(space));
    } else {
      Log(LogSeverity::kWarning, "device %d: no plan was taken up: %s", plan.device, why.c_str());
      why_not = why;
    }
  }
  if (made.spaces.empty()) return Error{why_not};
  prepared.emplace(std::move(made));
  return Ok{};
}

Status Session::PreparePlan(const std::string& path) {
  Impl& self = *impl_;
  if (self.inert.load(std::memory_order_relaxed)) return Error{"this process was forked"};
  const LockGuard lock(self.preparing);
  return self.Prepare(path);
}

Status Session::TakePlan(const std::string& path) {
  Impl& self = *impl_;
  if (self.inert.load(std::memory_order_relaxed)) return Error{"this process was forked"};
  const LockGuard preparing_lock(self.preparing);
  if (!self.prepared.has_value() || self.prepared->path != path) {
    if (Status made = self.Prepare(path); !made.ok()) return made;
  }
  const LockGuard lock(self.mutex);
  const LockGuard marks_lock(self.marks_mutex);
  std::string why;
  bool taken = false;
  for (auto& [device, space] : self.prepared->spaces) {
    why = Device(device)->TakePlan(space, self.open_marks.explicit_kinds());
    taken = taken || why.empty();
    if (!why.empty()) Log(LogSeverity::kWarning, "device %d: no plan was taken up: %s", device, why.c_str());
  }
  if (!taken) return Error{why};  // what is prepared waits for the next try
  self.prepared.reset();
  return Ok{};
}

Status Session::TraceAgain(const std::string& path) {
  Impl& self = *impl_;
  if (self.inert.load(std::memory_order_relaxed)) return Error{"this process was forked"};
  if (self.config.mode != Mode::kAuto) return Error{"only STALLOC_MODE=Auto traces more than once"};
  const LockGuard lock(self.mutex);
  if (!self.recorders.empty()) self.recorders.back()->Close();
  if (Status made = MakeParentDirectories(path); !made.ok()) return made;
  if (Status opened = self.OpenTrace(path); !opened.ok()) return opened;
  Recorder* const recorder = self.recorders.back().get();
  self.ForEachDevice([&](DeviceRuntime& device) { device.RecordTo(recorder); });
  return Ok{};
}

std::string Session::SignatureJson() const { return impl_->signature == nullptr ? "{}" : impl_->signature->Json(); }

void Session::DropPlan() noexcept {
  impl_->ForEachDevice([](DeviceRuntime& device) { device.DropPlan(); });
}

void Session::MoveTo(const std::string& directory) {
  const LockGuard lock(impl_->mutex);
  impl_->moved_to = directory;
}

void Session::Flush() {
  if (Recorder* const recorder = impl_->Recording(); recorder != nullptr) recorder->Flush();
}

void Session::StopTrace() {
  if (impl_->signature != nullptr) impl_->signature->Close();
  Recorder* const recorder = impl_->Recording();
  if (recorder == nullptr) return;
  recorder->Close();
  impl_->ForEachDevice([](DeviceRuntime& device) { device.RecordTo(nullptr); });  // nor request what it would record
}

std::string Session::StatsJson() const {
  const Impl& self = *impl_;
  SessionFigures figures;
  if (!self.inert.load(std::memory_order_relaxed)) {
    const LockGuard lock(self.mutex);
    figures.config = self.Current();
    figures.plan_loaded = self.plans.has_value();
    figures.degraded = self.degraded;
    figures.fingerprint = self.fingerprint;
    figures.trace_begun = !self.recorders.empty();
    if (figures.trace_begun) figures.recorder = self.recorders.back()->GetCounters();
    for (const Impl::Device& device : self.devices) figures.devices.push_back({device.index, device.runtime->Stats()});
  } else {
    figures.config = self.config;
    figures.degraded = "forked child: the parent keeps the figures";
  }
  return StatsToJson(figures);
}

bool Session::Impl::HasAllocated() const {
  const LockGuard lock(mutex);
  return std::any_of(devices.begin(), devices.end(),
                     [](const Device& device) { return device.runtime->Stats().requests != 0; });
}

Status Session::WriteSummary() const {
  // A child's figures would overwrite its parent's.
  if (impl_->inert.load(std::memory_order_relaxed) || impl_->config.mode == Mode::kTorch) return Ok{};
  if (!impl_->HasAllocated()) return Ok{};  // nor those of a process that this one has started, at its rank
  std::string path;
  {
    const LockGuard lock(impl_->mutex);
    path = impl_->Current().SummaryPath();
  }
  if (Status made = MakeParentDirectories(path); !made.ok()) return made;
  return WriteFileAtomically(path, StatsJson() + "\n");
}

// For runs that kept to their plans: the matches of one that gave its plan up are chance.
void Session::Impl::WriteObserved() {
  Observed observed;
  std::size_t entries = 0;
  std::string path;
  {
    const LockGuard lock(mutex);
    path = Current().ObservedPath();
    for (const Device& device : devices) {
      const PlanEngine* const engine = device.runtime->engine();
      if (engine == nullptr || device.runtime->Stats().gave_up) continue;
      ObservedDevice seen = engine->Observed();
      entries += seen.entries.size();
      if (!seen.entries.empty()) observed.devices.push_back(std::move(seen));
    }
  }
  if (entries == 0) return;
  Status written = MakeParentDirectories(path);
  if (written.ok()) written = WriteFileAtomically(path, EncodeObserved(observed));
  if (written.ok()) {
    Log(LogSeverity::kDebug, "%zu entries of the plan were seen to differ from it: %s, for `stalloc plan --refine`",
        entries, path.c_str());
  } else {
    Log(LogSeverity::kWarning, "what was seen of the plan is not kept: %s", written.error().c_str());
  }
}

void Session::Finish() {
  Impl& self = *impl_;
  if (self.inert.load(std::memory_order_relaxed) || self.finished.exchange(true)) return;
  if (Recorder* const recorder = self.Recording(); recorder != nullptr) {
    recorder->Close();
    const std::string error = recorder->GetCounters().write_error;
    if (!error.empty()) Log(LogSeverity::kError, "the trace is not whole: %s", error.c_str());
  }
  self.WriteObserved();
  if (const Status written = WriteSummary(); !written.ok()) {
    Log(LogSeverity::kWarning, "no summary: %s", written.error().c_str());
  }
}

const Config& Session::config() const noexcept { return impl_->config; }

std::string Session::degraded() const {
  const LockGuard lock(impl_->mutex);
  return impl_->degraded;
}

std::string Session::failure() const {
  const LockGuard lock(impl_->mutex);
  return impl_->failure;
}

void Session::BecomeInert() noexcept {
  impl_->inert.store(true, std::memory_order_relaxed);
  impl_->ForEachDevice([](DeviceRuntime& device) { device.BecomeInert(); });
}

}  // namespace stalloc
