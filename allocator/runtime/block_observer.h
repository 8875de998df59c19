// BlockObserver: learns of the blocks of one device, and of the marks between them.
//
//   a request is served --> Began --> the program has the block --> Used --> Ends --> its address is free
//
// Called with no lock of the engine held, from any thread. Calls for one address come in order, and Ends once for each
// Began. Sizes are bytes.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "allocator/base/check.h"
#include "allocator/engine/plan_engine.h"
#include "proto/model/trace.h"
#include "proto/model/units.h"

namespace stalloc {

// Where a request comes from, as far as it decides who may serve it.
enum class Origin : std::uint8_t {
  kProgram,
  kCaptured,  // a graph capture or MemPool owns this stream's requests
  kParallel,  // inside a parallel region: its threads' requests come in any order, so a plan cannot expect them
};

enum class BlockSource : std::uint8_t { kArena, kHeap, kUpstream };
[[nodiscard]] inline const char* BlockSourceName(BlockSource source) noexcept {
  constexpr const char* kNames[] = {"arena", "heap", "upstream"};
  return static_cast<std::size_t>(source) < 3 ? kNames[static_cast<std::size_t>(source)] : "?";
}

struct BlockBegin {
  const void* pointer = nullptr;
  Bytes requested = 0;
  StreamHandle stream = 0;
  std::uint32_t pool = 0;  // of what is captured: 1 + the ordinal of its pool; 0: not known
  Origin origin = Origin::kProgram;
  BlockSource source = BlockSource::kUpstream;
  MissReason reason = MissReason::kNone;  // why it has no slot of the plan
  bool apart = false;                     // it lies in a pool that is kept apart
};

struct BlockEnd {
  void* pointer = nullptr;
  Bytes bytes = 0;                      // rounded; 0: no block of the device begins there
  std::optional<StreamHandle> current;  // of the thread that frees it, where that is known
};

class BlockObserver {
 public:
  virtual ~BlockObserver() = default;
  // Else none of the calls below comes; from any thread.
  [[nodiscard]] bool listens() const noexcept { return listens_.load(std::memory_order_relaxed); }

  // Before the program has the block.
  virtual void Began(const BlockBegin& block) = 0;
  // Before the address can be given out again.
  virtual void Ends(const BlockEnd& block) noexcept = 0;
  // Another stream uses the block, too.
  virtual void Used(const void* /*pointer*/, StreamHandle /*stream*/) noexcept {}
  // Before the engine sees the mark.
  virtual void OnMark(const Mark& /*mark*/) {}
  // At marks but for layers: upstream holds so much now.
  virtual void Held(Bytes /*upstream*/) noexcept {}

 protected:
  explicit BlockObserver(bool listens) noexcept : listens_(listens) {}
  void Listen(bool listens) noexcept { listens_.store(listens, std::memory_order_relaxed); }

 private:
  std::atomic<bool> listens_;
};

// The observers of a device; none comes or goes after its first block.
class BlockObservers {
 public:
  static constexpr std::size_t kMost = 8;

  // It outlives the list.
  void Add(BlockObserver& observer) noexcept {
    STALLOC_CHECK(count_ < kMost);
    observers_[count_++] = &observer;
  }
  [[nodiscard]] bool AnyListens() const noexcept {
    return std::ranges::any_of(All(), [](const BlockObserver* observer) { return observer->listens(); });
  }

  void Began(const BlockBegin& block) const {
    ForEach([&](BlockObserver& observer) { observer.Began(block); });
  }
  void Ends(const BlockEnd& block) const noexcept {
    ForEach([&](BlockObserver& observer) { observer.Ends(block); });
  }
  void Used(const void* pointer, StreamHandle stream) const noexcept {
    ForEach([&](BlockObserver& observer) { observer.Used(pointer, stream); });
  }
  void OnMark(const Mark& mark) const {
    ForEach([&](BlockObserver& observer) { observer.OnMark(mark); });
  }
  void Held(Bytes upstream) const noexcept {
    ForEach([&](BlockObserver& observer) { observer.Held(upstream); });
  }

 private:
  [[nodiscard]] std::span<BlockObserver* const> All() const noexcept { return {observers_.data(), count_}; }
  template <typename Call>
  void ForEach(Call&& call) const {
    for (BlockObserver* const observer : All()) {
      if (observer->listens()) call(*observer);
    }
  }

  std::array<BlockObserver*, kMost> observers_{};
  std::size_t count_ = 0;
};

}  // namespace stalloc
