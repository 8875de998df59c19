// ThreadedRun: a random program of several threads on several streams through the whole runtime, over a QueuedDevice.
//
// Each thread is a training loop of its own, as two models trained at once are: it asks for memory on its stream, gives
// kernels to it, frees, marks its iterations; some blocks are used on another stream, recorded or not, or on another
// device's, or freed by another thread. Beside them somebody empties caches, sets limits, marks, captures, and somebody
// puts all blocks to sleep, or those of a region, and wakes them, while the others free and ask. The plan was made for
// these loops in another order of events, or for other loops, so that blocks are displaced, memory moves and the arena
// grows. Some runs take it up in the middle.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <random>
#include <shared_mutex>
#include <string>
#include <utility>
#include <vector>

#include "allocator/driver/host_driver.h"
#include "allocator/runtime/device_runtime.h"
#include "tests/engine/stress_program.h"
#include "tests/runtime/fake_upstream.h"
#include "tests/runtime/log_capture.h"
#include "tests/runtime/queued_copies.h"
#include "tests/runtime/queued_device.h"

namespace stalloc {

class ThreadedRun {
 public:
  struct Result {
    QueuedDevice::Findings findings;
    RuntimeStats stats;
    std::uint64_t operations = 0;  // requests, frees, marks, and what the device ran
    int threads = 0;
    int streams = 0;
    std::uint64_t sleeps = 0;
    std::uint64_t refused = 0;  // requests while all slept
    bool full = false;          // the device had no more than the plan's arena
    bool switched = false;      // the plan was taken up in the middle
    bool peers = false;         // another device used its memory
  };
  // All of it. The seed decides everything but the order in which threads come to run.
  static Result Of(std::uint64_t seed, QueuedDevice::Habits habits = {});

 private:
  struct Block {
    std::byte* pointer = nullptr;
    Bytes bytes = 0;
    StreamHandle stream = 0;
    std::uint64_t key = 0;      // what its next kernel writes
    std::uint64_t written = 0;  // what its last one wrote; 0: none has
    bool elsewhere = false;     // its last kernel is on another stream, which was recorded
    bool in_region = false;
  };
  // One thread's loop.
  struct Worker {
    std::mt19937_64 random;
    StreamHandle stream = 0;
    bool alone = false;  // no other thread asks for memory on its stream
    bool marks = false;  // its iterations
    std::vector<CorpusAllocation> program;
    std::vector<Block> left_over;
    std::vector<StreamHandle> behind;  // its next kernel has to run behind these
  };

  ThreadedRun(std::uint64_t seed, QueuedDevice::Habits habits);
  [[nodiscard]] DevicePlan MakePlan(const std::vector<std::vector<CorpusAllocation>>& programs);
  void AddTurns();
  [[nodiscard]] bool Happens(std::mt19937_64& random, double share) const;

  Result Run();
  void Work(Worker& worker);
  void Iterate(Worker& worker, const Divergence& divergence);
  void Allocate(Worker& worker, Block& block, Bytes bytes);
  void UseElsewhere(Worker& worker, Block& block);
  void End(Worker& worker, const Block& block);
  void Free(const Block& block, StreamHandle current);
  void FreeOfOthers(Worker& worker);
  void Launch(Worker& worker, Block& block);
  void Mark(MarkKind kind, MarkEdge edge, Pass pass = Pass::kNone);
  void TakePlan();
  void Meddle(std::uint64_t seed, const std::atomic<bool>& stop);
  void Capture(std::mt19937_64& random);
  void SleepAndWake(std::uint64_t seed, const std::atomic<bool>& stop);

  // What sleeps is used by nobody. Whoever is to put blocks to sleep comes before those who come later.
  class Door {
   public:
    [[nodiscard]] std::shared_lock<std::shared_mutex> Use() {
      const std::lock_guard turn(turn_);
      return std::shared_lock(users_);
    }
    [[nodiscard]] std::unique_lock<std::shared_mutex> Close() {
      const std::lock_guard turn(turn_);
      return std::unique_lock(users_);
    }

   private:
    std::mutex turn_;
    std::shared_mutex users_;
  };
  using InUse = std::pair<std::shared_lock<std::shared_mutex>, std::shared_lock<std::shared_mutex>>;
  [[nodiscard]] InUse Use(const Block& block) {
    return {of_all_.Use(), block.in_region ? of_region_.Use() : std::shared_lock<std::shared_mutex>()};
  }

  LogCapture log_;
  std::mt19937_64 random_;
  const int stream_count_;
  std::vector<Worker> workers_;
  std::vector<StreamHandle> streams_;  // of the plan's ordinals
  DevicePlan plan_;
  bool full_ = false;
  bool peers_ = false;      // another device uses this one's memory
  int switches_ = 0;        // plans that are taken up, still: there is none at first
  std::mutex marks_mutex_;  // as the session's
  FakeUpstream upstream_;
  std::unique_ptr<HostDriver> host_;
  std::unique_ptr<QueuedDevice> device_;
  std::unique_ptr<QueuedCopies> copies_;
  std::unique_ptr<DeviceRuntime> runtime_;
  std::mutex handed_over_mutex_;
  std::vector<Block> handed_over_;  // to be freed by whoever comes
  std::atomic<std::uint64_t> next_key_{1};
  std::atomic<std::uint64_t> operations_{0};
  std::atomic<int> iterations_{0};
  Door of_all_;
  Door of_region_;
  std::atomic<std::uint64_t> sleeps_{0};
  std::atomic<std::uint64_t> refused_{0};
  std::string lost_;  // the sleeper's; why it did not wake
};

}  // namespace stalloc
