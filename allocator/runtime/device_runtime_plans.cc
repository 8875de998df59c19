// Taking plans up: arenas come, serve, and are left for others.
#include <algorithm>
#include <utility>

#include "allocator/base/log.h"
#include "allocator/base/mutex.h"
#include "allocator/runtime/device_runtime_impl.h"

namespace stalloc {

// Arenas --------------------------------------------------------------------------------------------------------------

void DeviceRuntime::Impl::SetUpPlan() {
  std::unique_ptr<PlannedSpace> made =
      BuildSpace(*parts.plan, {.dynamic = parts.dynamic, .maps_late = parts.maps_late}, &degraded);
  if (made != nullptr) {
    if (parts.maps_late) settled_at.store(kSettledAfter, std::memory_order_relaxed);
    if (parts.doubts) without_plan = BuildWithoutPlan();
    if (without_plan != nullptr) doubt.Open();
    Announce(*made);
    spaces.Add(std::move(made));
  }
  if (!degraded.empty()) {
    Log(LogSeverity::kWarning, "device %d: %s; the run goes on unplanned", parts.device, degraded.c_str());
  }
}

// Without it upstream serves them, too. Nothing is mapped yet.
std::unique_ptr<PlannedSpace> DeviceRuntime::Impl::BuildWithoutPlan() {
  if (parts.driver == nullptr || watch != nullptr || !parts.dynamic) return nullptr;
  std::string why;
  VmmDriver& driver = *parts.driver;
  std::unique_ptr<PlannedSpace> made =
      PlannedSpace::Create(driver, parts.fence, {}, {.dynamic = true, .moves_at_marks = parts.moves_at_marks}, &why);
  if (made == nullptr) {
    Log(LogSeverity::kDebug, "device %d: %s", parts.device, why.c_str());
  } else {
    made->SetListener(this);
  }
  return made;
}

void DeviceRuntime::Impl::LeavePlan() noexcept {
  const LockGuard lock(adding);
  const auto still = sleep != nullptr ? sleep->HoldStill() : std::unique_lock<Mutex>();
  if (sleep != nullptr && sleep->everything_sleeps()) return;
  PlannedSpace* const before = spaces.Serving();
  if (without_plan == nullptr || !before->has_plan() || before->gave_up() || spaces.full()) return;
  before->GiveUp();
  before->Retire();
  before->GiveBackIdle();
  without_plan->engine().StartAt({counts.iterations(), doubt.explicit_kinds()});
  AddSpace(std::move(without_plan));
  left.store(true, std::memory_order_relaxed);
}

// A listener counts our blocks from the first one on. REQUIRES: adding is held.
void DeviceRuntime::Impl::AddSpace(std::shared_ptr<PlannedSpace> space) noexcept {
  BeforeArenaChange();
  {
    const LockGuard lock(next_space_mutex);
    if (next_space.lock() == space) {
      next_space.reset();
      has_next_space.store(false, std::memory_order_release);
    }
  }
  spaces.Add(std::move(space));
  AfterArenaChange();
}

std::unique_ptr<PlannedSpace> DeviceRuntime::Impl::BuildSpace(const DevicePlan& plan, PlannedSpace::Options options,
                                                              std::string* why) {
  if (plan.arena_bytes == 0) *why = "the plan has no arena: it serves no request";
  if (why->empty() && parts.driver == nullptr) *why = "this device has no driver for an arena";
  if (!why->empty()) return nullptr;
  VmmDriver& driver = watch != nullptr ? watch->driver() : *parts.driver;
  options.moves_at_marks = parts.moves_at_marks;
  options.rules = parts.rules;
  options.keep_free = parts.keep_free;
  options.device = parts.device;
  options.graphs = watch == nullptr && parts.shares_graphs ? parts.graphs : nullptr;
  options.poison = poison.get();
  return PlannedSpace::Create(driver, parts.fence, plan, options, why);
}

// It will serve.
void DeviceRuntime::Impl::Announce(PlannedSpace& space) {
  space.SetListener(this);
  if (held_limit.load(std::memory_order_relaxed) != 0 && spaces.Serving() != nullptr) space.TryAgain();
  if (parts.reports != nullptr) entries.Publish(std::make_unique<PlanEntries>(space.plan()));
  if (watch != nullptr) watch->watch().SetArena(space.arena().base(), space.arena().reserved_bytes());
}

// An arena without a plan for everything but captures.
void DeviceRuntime::Impl::SetUpExact() {
  if (parts.driver != nullptr) {
    std::string why;
    VmmDriver& driver = watch != nullptr ? watch->driver() : *parts.driver;
    std::unique_ptr<PlannedSpace> made = PlannedSpace::Create(driver, parts.fence, {},
                                                              {.dynamic = true,
                                                               .moves_at_marks = parts.moves_at_marks,
                                                               .exact = true,
                                                               .keep_free = parts.keep_free,
                                                               .device = parts.device},
                                                              &why);
    traces_exactly = made != nullptr;
    if (traces_exactly) {
      made->SetListener(this);
      if (watch != nullptr) watch->watch().SetArena(made->arena().base(), made->arena().reserved_bytes());
      spaces.Add(std::move(made));
      return;
    }
  }
  degraded = "exact tracing is not possible on this device; it is traced in fast mode";
  Log(LogSeverity::kWarning, "device %d: %s", parts.device, degraded.c_str());
}

DeviceRuntime::DeviceRuntime(const Parts& parts) : impl_(std::make_unique<Impl>(parts)) {
  if (parts.plan != nullptr) {
    impl_->adding.AssertHeld();  // nobody else knows it yet
    impl_->SetUpPlan();
  } else if (parts.recorder != nullptr && parts.exact) {
    impl_->SetUpExact();
  } else if (parts.awaits_plan) {
    if (auto made = impl_->BuildWithoutPlan(); made != nullptr) impl_->spaces.Add(std::move(made));
  }
  if (parts.plan != nullptr || parts.awaits_plan) {
    impl_->native.feed().Open([] { return std::vector<NativeFeed::LiveBlock>(); });
  }
  impl_->Sample();
  const bool listens = !impl_->spaces.All().empty() || parts.recorder != nullptr;
  if (parts.graphs != nullptr && listens) parts.graphs->SetListener(parts.device, impl_.get());
}

DeviceRuntime::~DeviceRuntime() {
  if (impl_->parts.graphs != nullptr) impl_->parts.graphs->SetListener(impl_->parts.device, nullptr);
}

// Plans -------------------------------------------------------------------------------------------------------------

void DeviceRuntime::DropPlan() noexcept {
  Impl& self = *impl_;
  if (self.inert.load(std::memory_order_relaxed)) return;
  const LockGuard adding(self.adding);
  PlannedSpace* const space = self.spaces.Serving();
  if (space == nullptr || !space->has_plan() || space->gave_up()) return;
  space->GiveUp();
  space->GiveBackIdle();
}

// On a free card its memory comes now, out of the run's way. Not where a limit leaves too little for what upstream
// holds in an iteration.
std::shared_ptr<PlannedSpace> DeviceRuntime::PreparePlan(const DevicePlan& plan, std::string* why) {
  Impl& self = *impl_;
  std::shared_ptr<PlannedSpace> made = self.BuildSpace(plan, {.dynamic = self.parts.dynamic, .maps_late = true}, why);
  const bool is_awake = self.sleep == nullptr || self.sleep->awake();
  const Upstream::Held upstream = self.parts.upstream->HeldBytes();
  const Bytes to_come = upstream.peak - std::min(upstream.peak, upstream.current);
  if (made == nullptr || !is_awake || !self.IsWithinLimit(plan.arena_bytes + to_come)) return made;
  {
    const LockGuard lock(self.next_space_mutex);
    self.next_space = made;
    self.has_next_space.store(true, std::memory_order_release);
  }
  made->MapAhead();
  self.Sample();
  return made;
}

std::string DeviceRuntime::TakePlan(const DevicePlan& plan, std::uint32_t explicit_kinds) {
  std::string why;
  std::shared_ptr<PlannedSpace> prepared =
      impl_->BuildSpace(plan, {.dynamic = impl_->parts.dynamic, .maps_late = true}, &why);
  return prepared != nullptr ? TakePlan(prepared, explicit_kinds) : why;
}

std::string DeviceRuntime::TakePlan(std::shared_ptr<PlannedSpace>& prepared, std::uint32_t explicit_kinds) {
  Impl& self = *impl_;
  if (self.inert.load(std::memory_order_relaxed)) return "this process was forked";
  if (self.traces_exactly) return "this device is traced exactly";
  const LockGuard adding(self.adding);
  if (self.spaces.full()) return "this device has taken as many plans up as it can";
  const auto still = self.sleep != nullptr ? self.sleep->HoldStill() : std::unique_lock<Mutex>();
  if (self.sleep != nullptr && self.sleep->everything_sleeps()) return "this device is asleep";
  PlannedSpace* const before = self.spaces.Serving();
  if (self.parts.driver != nullptr && !self.parts.driver->Synchronize().ok()) {
    return "the device cannot be waited for: a graph is being captured";
  }
  const PlanStart start{self.counts.iterations(), explicit_kinds};
  prepared->engine().StartAt(start);
  self.Announce(*prepared);
  // What is mapped comes as requests need it, so that nothing is held twice: not even what lives in the first iteration
  // only (gradients that it frees).
  if (before != nullptr) before->Retire();
  self.spaces.GiveBackIdle();
  self.parts.upstream->ReleaseCached();
  self.upstream_cache.BeginPlan(self.UpstreamNow());
  self.settled_at.store(start.iterations + Impl::kSettledAfter, std::memory_order_relaxed);
  self.AddSpace(std::move(prepared));
  const Upstream::Held held = self.Sample();
  const Bytes own = self.OwnBytes();
  self.counts.BeginSteady();
  const LockGuard lock(self.cold);
  self.ledger.Begin(Span::kPlan);
  self.meter.Begin(Span::kPlan, own, held);
  self.taken_up_at = start.iterations;
  return {};
}

}  // namespace stalloc
