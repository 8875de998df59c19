// DeviceSleep: puts what lives in the arenas of one device to sleep, and wakes it (allocator/sleep/README.md).
//
//   awake --Sleep--> busy --> asleep       everything sleeps: larger requests are errors until a wake
//     ^                |         |
//     +-- some sleeps -+         |         some sleeps: the others are served
//     +------ Wake: busy <-------+
//
// Sleep and Wake come from any thread, one at a time. A request that comes while one of them is under way waits for its
// end. A sleep that fails leaves everything awake, but for what is at the host and finds no way back: the error says
// so, and a wake brings it. A wake that fails leaves everything asleep, and may be tried again.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "allocator/base/mutex.h"
#include "allocator/driver/device_copies.h"
#include "allocator/runtime/spaces.h"
#include "allocator/sleep/arena_sleep.h"
#include "proto/model/result.h"

namespace stalloc {

class Upstream;

// Names of regions; "" is what was allocated in none.
using TagNames = std::optional<std::vector<std::string>>;

struct SleepOrder {
  TagNames tags;  // that sleep; none: everything
  TagNames keep;  // of these, what is brought to the host; none: as their regions say. The rest is lost.
};

// What one sleep or wake of a device did. Bytes, seconds.
struct SleepFigures {
  DeviceIndex device = 0;
  std::uint64_t blocks = 0;
  Bytes kept = 0;
  Bytes dropped = 0;
  Bytes copied = 0;  // to or from the host; less than `kept` where memory stays for others that are awake
  std::uint64_t copies = 0;
  Bytes given_back = 0;  // of the arenas to the device; of a wake: had again
  Bytes asleep = 0;      // afterwards, as the four below
  Bytes arena = 0;       // still mapped
  Bytes upstream_reserved = 0;
  Bytes upstream_live = 0;
  Bytes host_pool = 0;
  double pool_seconds = 0;  // to take memory of the host, mostly in the first sleep
  double seconds = 0;       // all of it
};

// A request for memory of a device that is asleep.
class AsleepError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class DeviceSleep {
 public:
  struct Parts {
    DeviceIndex device = 0;
    VmmDriver* driver = nullptr;  // the four of them outlive this
    DeviceCopies* copies = nullptr;
    Upstream* upstream = nullptr;
    Spaces* spaces = nullptr;
    bool fills = false;  // what was dropped gets the watch's pattern at a wake
  };
  explicit DeviceSleep(const Parts& parts) : parts_(parts), pool_(*parts.copies) {}

  [[nodiscard]] Result<SleepFigures> Sleep(const SleepOrder& order);
  [[nodiscard]] Result<SleepFigures> Wake(const TagNames& tags);

  // Copies bytes of a block that sleeps. An error where it does not, or they are not all at the host.
  [[nodiscard]] Status Read(const void* pointer, Bytes bytes, void* to);

  // Requests look here first.
  [[nodiscard]] bool awake() const noexcept { return state_.load(std::memory_order_relaxed) == State::kAwake; }
  // Waits for a sleep or a wake that is under way. Throws AsleepError if everything sleeps then. Not for what goes
  // upstream: small requests and captured ones.
  void AwaitAwake(Bytes requested, bool goes_upstream);
  // No sleep or wake is under way as long as the lock is held.
  [[nodiscard]] std::unique_lock<Mutex> HoldStill() STALLOC_NO_THREAD_SAFETY_ANALYSIS {
    return std::unique_lock(mutex_);
  }
  // REQUIRES: HoldStill.
  [[nodiscard]] bool everything_sleeps() const noexcept {
    return state_.load(std::memory_order_relaxed) == State::kAsleep;
  }

  // Returns when no copy of a wake is under way.
  void AwaitCopies();

  // Takes memory of the host for a later sleep. Gives back what no sleep uses now; bytes.
  [[nodiscard]] Status ReserveHost(Bytes bytes);
  [[nodiscard]] Bytes ReleaseHost();
  [[nodiscard]] Bytes host_bytes();

 private:
  enum class State : std::uint8_t { kAwake, kBusy, kAsleep };
  class Operation;

  [[nodiscard]] Bytes LeastRefused() const noexcept;
  [[nodiscard]] ArenaSleep& Of(PlannedSpace& space) STALLOC_REQUIRES(mutex_);
  [[nodiscard]] SleepFigures Sum(double seconds) STALLOC_REQUIRES(mutex_);
  [[nodiscard]] Status PutToSleep(const SleepOrder& order, double* pool_seconds) STALLOC_REQUIRES(mutex_);
  [[nodiscard]] Status WakeUp(const TagNames& tags) STALLOC_REQUIRES(mutex_);
  [[nodiscard]] DriverStatus AwaitAllDevices();
  [[nodiscard]] DriverStatus SaveAll() STALLOC_REQUIRES(mutex_);
  [[nodiscard]] DriverStatus RestoreAll() STALLOC_REQUIRES(mutex_);
  void MakeRoom() STALLOC_REQUIRES(mutex_);
  [[nodiscard]] std::string DeviceText() const;
  template <typename Step>
  void ForEach(Step&& step) STALLOC_REQUIRES(mutex_);
  template <typename Step>
  DriverStatus ForEachOk(Step&& step) STALLOC_REQUIRES(mutex_);
  template <typename Step>
  [[nodiscard]] auto UntilFailure(Step&& step) STALLOC_REQUIRES(mutex_);

  const Parts parts_;
  std::atomic<State> state_{State::kAwake};
  Mutex mutex_;  // held through a sleep or a wake; guards all below
  HostPool pool_ STALLOC_GUARDED_BY(mutex_);
  std::map<PlannedSpace*, std::unique_ptr<ArenaSleep>> arenas_ STALLOC_GUARDED_BY(mutex_);
};

}  // namespace stalloc
