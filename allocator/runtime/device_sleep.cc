#include "allocator/runtime/device_sleep.h"

#include <algorithm>
#include <array>

#include "allocator/base/clock.h"
#include "allocator/base/mutex.h"
#include "allocator/runtime/device_runtime.h"
#include "allocator/runtime/human_bytes.h"
#include "allocator/runtime/sleep_tags.h"

namespace stalloc {
namespace {

double SecondsSince(std::int64_t begin) { return static_cast<double>(MonotonicNanoseconds() - begin) * 1e-9; }

bool Contains(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// A name that no region has is a mistake.
Status CheckNames(const TagNames& names, const std::vector<SleepTags::Tag>& tags) {
  if (!names.has_value()) return Ok{};
  for (const std::string& name : *names) {
    if (std::any_of(tags.begin(), tags.end(), [&](const auto& tag) { return tag.name == name; })) continue;
    std::string known;
    for (const SleepTags::Tag& tag : tags) {
      if (!tag.name.empty()) known += (known.empty() ? "" : ", ") + tag.name;
    }
    return Error{"no region has the tag '" + name + "'; there are: " + (known.empty() ? "none" : known)};
  }
  return Ok{};
}

// By tag.
using Fates = std::vector<ArenaSleep::Fate>;

Fates FatesOf(const SleepOrder& order, const std::vector<SleepTags::Tag>& tags) {
  Fates fates;
  for (const SleepTags::Tag& tag : tags) {
    const bool sleeps = !order.tags.has_value() || Contains(*order.tags, tag.name);
    const bool kept = order.keep.has_value() ? Contains(*order.keep, tag.name) : tag.kept;
    fates.push_back(!sleeps ? ArenaSleep::Fate::kStaysAwake
                            : (kept ? ArenaSleep::Fate::kKept : ArenaSleep::Fate::kDropped));
  }
  return fates;
}

std::string Describe(const DriverStatus& status) {
  return std::string(status.call) + " gave " + std::to_string(status.native);
}

}  // namespace

// A sleep or wake from its begin to its end, however it ends: what is not committed is put back.
class DeviceSleep::Operation {
 public:
  explicit Operation(DeviceSleep& sleep) : sleep_(sleep), before_(sleep.state_.exchange(State::kBusy)) {
    sleep_.ForEach([](ArenaSleep& arena) { arena.Begin(); });
  }
  ~Operation() {
    const State after = ended_ ? after_ : before_;
    if (!ended_) (void)PutBack();
    sleep_.ForEach([&](ArenaSleep& arena) { arena.End(after == State::kAsleep); });
    sleep_.state_.store(after, std::memory_order_release);
  }
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;

  void Commit(State after) {
    after_ = after;
    ended_ = true;
  }
  // What is awake before its end need not be all that was: bytes that sleep from now on, although they should not.
  Bytes PutBack() {
    Bytes left = 0;
    sleep_.mutex_.AssertHeld();
    (void)sleep_.parts_.copies->Await();  // none may be under way
    sleep_.ForEach([&](ArenaSleep& arena) { left += arena.Undo(); });
    Commit(before_);
    return left;
  }
  [[nodiscard]] State before() const { return before_; }

 private:
  DeviceSleep& sleep_;
  const State before_;
  State after_ = State::kAwake;
  bool ended_ = false;
};

std::string DeviceSleep::DeviceText() const {
  return parts_.device == kCpuDevice ? "the CPU" : "device " + std::to_string(parts_.device);
}

ArenaSleep& DeviceSleep::Of(PlannedSpace& space) {
  std::unique_ptr<ArenaSleep>& arena = arenas_[&space];
  if (arena == nullptr) {
    arena = std::make_unique<ArenaSleep>(space.arena(), parts_.driver->Granularity(), space.engine(), space.chunks(),
                                         *parts_.copies, pool_);
  }
  return *arena;
}

template <typename Step>
void DeviceSleep::ForEach(Step&& step) {
  for (PlannedSpace* const space : parts_.spaces->All()) step(Of(*space));
}

// Up to the first step that is not ok.
template <typename Step>
DriverStatus DeviceSleep::ForEachOk(Step&& step) {
  DriverStatus status;
  ForEach([&](ArenaSleep& arena) {
    if (status.ok()) status = step(arena);
  });
  return status;
}

// What the first step returned that was not ok.
template <typename Step>
auto DeviceSleep::UntilFailure(Step&& step) {
  for (PlannedSpace* const space : parts_.spaces->All()) {
    if (auto status = step(Of(*space)); !status.ok()) return status;
  }
  return decltype(step(std::declval<ArenaSleep&>())){Ok{}};
}

// Smaller ones have a pool upstream.
Bytes DeviceSleep::LeastRefused() const noexcept {
  constexpr Bytes kOfUpstream = Bytes{256} << 10;
  const Bytes least = parts_.spaces->Serving()->least_dynamic();
  return least > 0 ? std::min(least, kOfUpstream) : kOfUpstream;
}

void DeviceSleep::AwaitAwake(Bytes requested, bool goes_upstream) {
  const LockGuard lock(mutex_);
  if (!everything_sleeps() || goes_upstream || requested < LeastRefused()) return;
  throw AsleepError("stalloc: " + DeviceText() + " is asleep (stalloc.sleep): it has no " + HumanBytes(requested).text +
                    " to give before stalloc.wake()");
}

// Sleep ---------------------------------------------------------------------------------------------------------------

Result<SleepFigures> DeviceSleep::Sleep(const SleepOrder& order) {
  const LockGuard lock(mutex_);
  const std::int64_t begin = MonotonicNanoseconds();
  double pool_seconds = 0;
  if (Status slept = PutToSleep(order, &pool_seconds); !slept.ok()) {
    return Error{DeviceText() + " does not sleep: " + slept.error()};
  }
  SleepFigures figures = Sum(SecondsSince(begin));
  figures.pool_seconds = pool_seconds;
  return figures;
}

Status DeviceSleep::PutToSleep(const SleepOrder& order, double* pool_seconds) {
  const std::vector<SleepTags::Tag> tags = SleepTags::All();
  for (const TagNames* const names : {&order.tags, &order.keep}) {
    if (Status known = CheckNames(*names, tags); !known.ok()) return known;
  }
  const Fates fates = FatesOf(order, tags);
  const bool all = !order.tags.has_value();
  Operation operation(*this);
  const auto of_new = all ? ArenaSleep::Fate::kKept : ArenaSleep::Fate::kStaysAwake;  // a tag that is new this moment
  const auto fate_of = [&](const LiveBlock& block) { return block.tag < fates.size() ? fates[block.tag] : of_new; };
  if (Status chosen = UntilFailure([&](ArenaSleep& arena) { return arena.Choose(fate_of, all); }); !chosen.ok()) {
    return chosen;
  }
  const std::int64_t reserving = MonotonicNanoseconds();
  if (Status reserved = UntilFailure([](ArenaSleep& arena) { return arena.Reserve(); }); !reserved.ok()) {
    return reserved;
  }
  *pool_seconds = SecondsSince(reserving);
  // Only now: what lives was chosen, and kernels on blocks that were freed before are waited for as well.
  if (const DriverStatus waited = AwaitAllDevices(); !waited.ok()) {
    return Error{"the device cannot be waited for, as while a graph is captured (" + Describe(waited) + ")"};
  }
  if (const DriverStatus copied = SaveAll(); !copied.ok()) {
    std::string text = "its memory cannot be copied to the host: " + Describe(copied);
    if (const Bytes left = operation.PutBack(); left > 0) {
      text += std::string("; blocks of ") + HumanBytes(left).text +
              " had gone to the host, could not be brought back, and sleep: stalloc.wake() tries it again";
    }
    return Error{text};
  }
  ForEach([](ArenaSleep& arena) { arena.Commit(); });
  if (all) parts_.upstream->ReleaseCached();
  operation.Commit(all ? State::kAsleep : operation.before());
  return Ok{};
}

// Kernels of other devices read and write these blocks, too.
DriverStatus DeviceSleep::AwaitAllDevices() {
  const DriverStatus status = parts_.driver->Synchronize();
  return status.ok() ? parts_.driver->SynchronizeOthers() : status;
}

// All copies are under way before the first memory goes back.
DriverStatus DeviceSleep::SaveAll() {
  DriverStatus status = ForEachOk([](ArenaSleep& arena) { return arena.Save(); });
  if (!status.ok()) return status;
  ForEach([](ArenaSleep& arena) { arena.GiveIdle(); });
  return ForEachOk([](ArenaSleep& arena) { return arena.GiveSaved(); });
}

// Wake ----------------------------------------------------------------------------------------------------------------

Result<SleepFigures> DeviceSleep::Wake(const TagNames& tags) {
  const LockGuard lock(mutex_);
  const std::int64_t begin = MonotonicNanoseconds();
  if (Status woken = WakeUp(tags); !woken.ok()) {
    return Error{DeviceText() + " does not wake: " + woken.error() + "; it sleeps on, and wake can be called again"};
  }
  return Sum(SecondsSince(begin));
}

Status DeviceSleep::WakeUp(const TagNames& tags) {
  const std::vector<SleepTags::Tag> all_tags = SleepTags::All();
  if (Status known = CheckNames(tags, all_tags); !known.ok()) return known;
  const bool all = !tags.has_value();
  const auto wakes = [&](const LiveBlock& block) {
    return all || (block.tag < all_tags.size() && Contains(*tags, all_tags[block.tag].name));
  };
  Operation operation(*this);
  Bytes needed = 0;
  ForEach([&](ArenaSleep& arena) {
    arena.ChooseAsleep(wakes);
    needed += arena.needed_bytes();
  });
  const DriverStatus restored = RestoreAll();
  if (restored.code == DriverCode::kOutOfMemory) {
    MemoryInfo info;
    const bool is_known = parts_.driver->GetMemoryInfo(&info).ok();
    return Error{std::string("it needs ") + HumanBytes(needed).text + ", and the device has " +
                 (is_known ? HumanBytes(info.free).text : "less") + " free: others hold it (" + Describe(restored) +
                 ")"};
  }
  if (!restored.ok()) return Error{"its memory cannot be brought back: " + Describe(restored)};
  ForEach([&](ArenaSleep& arena) { arena.CommitAwake(all); });
  operation.Commit(State::kAwake);
  return Ok{};
}

// Where the device is full, what lies idle here or upstream may be what is lacking.
DriverStatus DeviceSleep::RestoreAll() {
  const auto restore = [this] {
    mutex_.AssertHeld();
    const DriverStatus status = ForEachOk([this](ArenaSleep& arena) { return arena.Restore(parts_.fills); });
    return status.ok() ? parts_.copies->PutBeforeAll() : status;
  };
  DriverStatus status = restore();
  if (status.code != DriverCode::kOutOfMemory) return status;
  (void)parts_.copies->Await();
  ForEach([](ArenaSleep& arena) { arena.Undo(); });
  MakeRoom();
  return restore();
}

void DeviceSleep::MakeRoom() {
  ForEach([](ArenaSleep& arena) { arena.WithdrawIdle(); });
  const bool is_done = AwaitAllDevices().ok();
  ForEach([&](ArenaSleep& arena) { (void)(is_done ? arena.ReleaseIdle() : arena.Undo()); });
  parts_.upstream->ReleaseCached();
}

// The rest ------------------------------------------------------------------------------------------------------------

SleepFigures DeviceSleep::Sum(double seconds) {
  SleepFigures sum{.device = parts_.device, .seconds = seconds};
  ForEach([&](ArenaSleep& arena) {
    const ArenaSleep::Figures& figures = arena.figures();
    sum.blocks += figures.blocks;
    sum.kept += figures.kept;
    sum.dropped += figures.dropped;
    sum.copied += figures.copied;
    sum.copies += figures.copies;
    sum.given_back += figures.given_back;
    sum.asleep += arena.AsleepBytes();
  });
  sum.arena = parts_.spaces->MappedBytes();
  sum.upstream_reserved = parts_.upstream->HeldBytes().current;
  sum.host_pool = pool_.bytes();
  return sum;
}

Status DeviceSleep::Read(const void* pointer, Bytes bytes, void* to) {
  const LockGuard lock(mutex_);
  PlannedSpace* const space = parts_.spaces->Of(pointer);
  const LiveBlock block = space != nullptr ? space->engine().FindLive(pointer) : LiveBlock{};
  if (!block.asleep) return Error{"no block sleeps there"};
  const Offset offset = reinterpret_cast<Address>(pointer) - space->arena().base();
  if (bytes > block.offset + block.bytes - offset) return Error{"the block that sleeps there is shorter"};
  if (Of(*space).Read({offset, bytes}, static_cast<std::byte*>(to))) return Ok{};
  return Error{"not all of its bytes are at the host: it was dropped, or lies next to blocks that are awake"};
}

void DeviceSleep::AwaitCopies() {
  const LockGuard lock(mutex_);
  (void)parts_.copies->Await();
}

Status DeviceSleep::ReserveHost(Bytes bytes) {
  const LockGuard lock(mutex_);
  return pool_.Reserve(RoundUp(bytes, kBlockAlignment));
}

Bytes DeviceSleep::ReleaseHost() {
  const LockGuard lock(mutex_);
  if (!parts_.copies->Await().ok()) return 0;  // a wake's copies may still read it
  return pool_.Release();
}

Bytes DeviceSleep::host_bytes() {
  const LockGuard lock(mutex_);
  return pool_.bytes();
}

}  // namespace stalloc
