// LiveBlocks: every live block of one device, under any allocator, with where in the training loop it was requested.
// Kept only where reports of out-of-memory errors are (STALLOC_OOM_REPORT).
//
// A place is what the marks last said: iteration, phase (as planner/analysis/phase_map.h names them) and innermost
// layer. Thread-safe. Add and Remove are for the hot path: no system call except when a table doubles; OnMark takes
// heap memory and is for one thread at a time. Bytes.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "allocator/base/mutex.h"
#include "allocator/base/open_table.h"
#include "allocator/base/spin_mutex.h"
#include "allocator/runtime/block_observer.h"
#include "proto/model/trace.h"

namespace stalloc {

class LiveBlocks {
 public:
  struct Block {
    std::uint64_t address = 0;
    Bytes requested = 0;
    StreamHandle stream = 0;
    std::uint64_t number = 0;  // of the request among the device's, from 0
    std::uint64_t place = 0;   // for PlaceOf
    BlockSource source = BlockSource::kUpstream;
  };
  struct Place {
    bool in_iteration = false;  // false: before the first one
    std::int32_t iteration = 0;
    const char* phase = "";  // "F 0", "optimizer"; empty: none is marked
    const char* layer = "";
  };

  void OnMark(const Mark& mark);

  void Add(const void* pointer, Bytes requested, StreamHandle stream, BlockSource source) noexcept;
  void Remove(const void* pointer) noexcept;

  // False where no such block is live.
  [[nodiscard]] bool Find(std::uint64_t address, Block* block) const noexcept;
  // Copies what fits of the live blocks of arenas and heap but for those in [address, address + bytes), in no
  // particular order; returns how many there are.
  [[nodiscard]] std::size_t CopyOwn(std::uint64_t address, Bytes bytes, std::span<Block> blocks) const noexcept;
  // The texts live as long as this.
  [[nodiscard]] Place PlaceOf(std::uint64_t place) const noexcept;
  [[nodiscard]] std::uint64_t present() const noexcept { return place_.load(std::memory_order_relaxed); }

 private:
  static constexpr std::size_t kShards = 16;
  static constexpr std::size_t kMostOpen = 256;  // layers without ends must not pile up
  static constexpr std::uint64_t kMostPhases = 1u << 11;
  static constexpr std::uint64_t kMostLayers = 1u << 20;

  struct alignas(64) Shard {
    mutable SpinMutex mutex;
    OpenTable<Block> blocks STALLOC_GUARDED_BY(mutex){256};  // guarded by mutex
  };
  // Texts by number; the first is empty, and so are those that there are too many of.
  struct Texts {
    std::deque<std::string> texts = {""};
    std::map<std::string, std::uint64_t, std::less<>> numbers;
    std::uint64_t Number(const std::string& text, std::uint64_t most);
  };

  static std::size_t IndexOf(std::uint64_t address) noexcept { return (address * 0x9e3779b97f4a7c15u) >> 60; }
  void Enter(const std::string& phase) STALLOC_REQUIRES(texts_);

  std::array<Shard, kShards> shards_;
  std::atomic<std::uint64_t> next_{0};
  std::atomic<std::uint64_t> place_{0};  // iteration << 32 | layer << 12 | phase << 1 | in_iteration
  mutable Mutex texts_;                  // guards what follows
  Texts phases_ STALLOC_GUARDED_BY(texts_);
  Texts layers_ STALLOC_GUARDED_BY(texts_);
  std::vector<std::uint64_t> open_layers_ STALLOC_GUARDED_BY(texts_);
  std::uint64_t before_fence_ STALLOC_GUARDED_BY(texts_) = 0;  // the phase
  int fences_ STALLOC_GUARDED_BY(texts_) = 0;
};

}  // namespace stalloc
