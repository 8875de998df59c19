// OrderRun: a random program through the engine, on many streams of a simulated device, which notices whoever gets
// bytes and does not run behind everybody who used them before. For tests.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <random>
#include <vector>

#include "allocator/backing/device_clock.h"
#include "allocator/engine/plan_engine.h"
#include "tests/engine/simulated_device.h"
#include "tests/engine/stress_program.h"

namespace stalloc {

// How the run's streams behave.
struct Streams {
  std::uint32_t planned = 3;  // ordinals of the plan
  double foreseen = 0.5;      // share of the hand-overs that the plan lists
  double recorded = 0.1;      // share of the blocks that another stream uses, too
  double strayed = 0;         // share of the requests from another stream than the plan's
  double elsewhere = 0;       // share of the blocks that another stream uses unrecorded, and that are freed on it; one
                              // thread only: another's request on the block's own stream would be wrong anywhere
  double untouched = 0;       // share of the blocks that no stream ever uses
  bool rotate = false;        // ordinal 1 is another stream in every iteration
  bool per_thread = false;    // ordinal 2 is the per-thread default stream
};

// Who is served: what has a slot, or also what has none, from idle room and above the plan's height.
enum class Served : std::uint8_t { kSlots, kEverything };

// Maps whatever the engine asks for.
class GrowingBacking final : public ArenaBacking {
 public:
  explicit GrowingBacking(Bytes mapped) : mapped_(mapped) {}
  void Feed(PlanEngine* engine) {
    engine_ = engine;
    engine->SetBacking(this);
  }
  bool EnsureBacked(Offset offset, Bytes bytes, std::uint64_t /*now*/, Growth /*growth*/) noexcept override {
    const std::lock_guard lock(mutex_);
    mapped_ = std::max(mapped_, offset + bytes);
    engine_->Extend(mapped_);
    return true;
  }

 private:
  PlanEngine* engine_ = nullptr;
  std::mutex mutex_;
  Bytes mapped_;
};

class OrderRun {
 public:
  OrderRun(std::uint64_t seed, std::size_t requests, const Streams& streams, SimulatedDevice::Habits habits,
           Served served = Served::kSlots);

  // From now on; one thread only.
  void LendParts() { lends_ = true; }

  void RunIteration(const Divergence& divergence, int threads);

  // Parts of the arena go back to the device for a while, those that it is known to be done with. One thread at a
  // time does this, beside those of RunIteration.
  void LendQuietParts();
  void TakeBackParts();
  [[nodiscard]] std::uint64_t quiet_parts() const { return quiet_parts_; }
  [[nodiscard]] std::uint64_t busy_parts() const { return busy_parts_; }

  void Finish();

  [[nodiscard]] const SimulatedDevice& device() const { return device_; }
  [[nodiscard]] SimulatedDevice& device() { return device_; }
  [[nodiscard]] PlanEngine& engine() { return engine_; }
  [[nodiscard]] double HitRate() const {
    const EngineStats stats = engine_.Stats();
    return static_cast<double>(stats.planned_hits) / static_cast<double>(stats.requests);
  }
  [[nodiscard]] double ShareBeside() const {
    const EngineStats stats = engine_.Stats();
    return static_cast<double>(stats.dynamic_hits) / static_cast<double>(stats.requests);
  }

 private:
  struct Block {
    void* pointer = nullptr;
    StreamHandle stream = 0;
    StreamHandle also = 0;       // 0: no other stream
    StreamHandle elsewhere = 0;  // uses it unrecorded, and it is freed there; 0: none
    bool parallel = false;       // asked for from a parallel region
    bool untouched = false;      // nobody uses it
    std::uint32_t lo = 0;
    std::uint32_t hi = 0;
  };

  [[nodiscard]] bool Happens(double share) { return random_() % 100'000 < 100'000 * share; }

  [[nodiscard]] StreamHandle HandleOf(std::uint32_t ordinal) const;
  void TakeSteps();
  void Allocate(Block& block, Bytes bytes);
  void Free(Block& block);
  std::vector<StreamHandle>& ElsewhereOf(const Block& block);
  // The block's own stream is made to wait only before it uses the next block.
  void FreeElsewhere(Block& block, StreamHandle stream);
  void FreeLeftovers();

  std::mt19937_64 random_;
  std::mt19937_64 lends_random_;
  const Streams streams_;
  const std::vector<CorpusAllocation> program_;
  const DevicePlan plan_;
  const DynamicSpaceOptions dynamic_;
  SimulatedDevice device_;
  GrowingBacking growth_;
  PlanEngine engine_;
  DeviceClock clock_;
  StressIteration iteration_;
  std::vector<Block> blocks_;
  std::vector<std::atomic<bool>> allocated_;
  std::vector<Block> left_over_;
  std::map<StreamHandle, std::vector<StreamHandle>> elsewhere_;  // blocks of the first were freed on these
  std::uint64_t iterations_ = 0;
  std::atomic<std::size_t> next_step_{0};
  bool lends_ = false;
  std::vector<std::uint32_t> lent_;  // granules
  std::uint64_t quiet_parts_ = 0;    // as the clock says
  std::uint64_t busy_parts_ = 0;
};

}  // namespace stalloc
