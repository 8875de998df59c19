// PassingMemory: what backs the arena of an OrderRun. It maps whatever the engine asks for; and where it is told to,
// its memory changes its addresses while the run goes on, as chunks with several addresses do
// (allocator/arena/arena.h). It knows which memory is behind which address. For tests.
//
//   addresses   |  0  |  1  | hole |  3  |  4  |       parts of kPart granules
//                  |     |           |     |
//   memory         0     4           3     1           1 was passed on from 1 to 4, and 4 from 4 to 1, over the hole
#pragma once

#include <algorithm>
#include <cstdint>
#include <mutex>
#include <random>
#include <vector>

#include "allocator/engine/plan_engine.h"
#include "tests/engine/simulated_device.h"

namespace stalloc {

class PassingMemory final : public ArenaBacking {
 public:
  static constexpr std::uint32_t kPart = 32;  // granules

  // What is passed on, and what the device is told of it.
  enum class Told : std::uint8_t { kAll, kNothing };          // kNothing: the engine hears nothing of it
  enum class Looks : std::uint8_t { kAtMemory, kAtAddress };  // kAtAddress: as if no memory ever changed its address

  // Of an arena whose addresses end at `limit`.
  PassingMemory(Bytes mapped, Bytes limit, SimulatedDevice& device, std::uint64_t seed);
  // Call before the first request.
  void Feed(PlanEngine* engine);
  // From now on. A few parts have no memory at first. Call before the first request.
  void BeginToPass(Told told, Looks looks);

  bool Back(Offset offset, Bytes bytes, std::uint64_t now, MayTake may_take) noexcept override;
  // A few parts in which no block lives pass on to where there is no memory. From any thread.
  void PassSome();

  // What the device knows the address's memory by, granules; the same up to the end of the part. REQUIRES: a block is
  // there, or the caller has withdrawn it.
  [[nodiscard]] std::uint32_t MemoryAt(std::uint32_t granule) const {
    return looks_ == Looks::kAtAddress ? granule : memory_[granule / kPart] * kPart + granule % kPart;
  }
  // Calls visit(lo, hi) for the memory at [lo, hi), which is cut where parts meet.
  template <typename Visit>
  void ForEachPiece(std::uint32_t lo, std::uint32_t hi, Visit&& visit) const {
    while (lo < hi) {
      const std::uint32_t end = std::min(hi, lo / kPart * kPart + kPart);
      visit(MemoryAt(lo), MemoryAt(lo) + (end - lo));
      lo = end;
    }
  }

  [[nodiscard]] std::uint64_t passed() const { return passed_; }  // parts
  // Of these, some stream had used the memory, and was not known to be done.
  [[nodiscard]] std::uint64_t passed_in_use() const { return passed_in_use_; }

 private:
  static constexpr std::uint32_t kNone = ~0u;

  // All of these REQUIRE: mutex_ is held.
  [[nodiscard]] static PlanEngine::Passing FromTo(std::uint32_t from, std::uint32_t to);
  // Some idle part, which is withdrawn now, is to pass on to `to`; false if none was found.
  bool Choose(std::uint32_t to, std::vector<PlanEngine::Passing>& passings);
  void ChooseAbove(std::vector<PlanEngine::Passing>& passings);
  void Pass(const std::vector<PlanEngine::Passing>& passings);
  void GrowTo(Bytes mapped);

  SimulatedDevice& device_;
  const Bytes limit_;
  PlanEngine* engine_ = nullptr;
  bool passes_ = false;
  Told told_ = Told::kAll;
  Looks looks_ = Looks::kAtMemory;
  std::vector<std::uint32_t> memory_;  // of each part; kNone: a hole. An entry is its block's, or the withdrawer's
  std::mutex mutex_;
  // Guarded by mutex_.
  std::mt19937_64 random_;
  Bytes mapped_;
  std::vector<std::uint32_t> holes_;  // below mapped_, withdrawn
  std::uint64_t passed_ = 0;
  std::uint64_t passed_in_use_ = 0;
};

}  // namespace stalloc
