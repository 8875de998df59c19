// PoolCatalog: what the captures of one graphs' pool requested and freed, and so which of its bytes their launches
// need.
//
//   dead     requested and freed in one capture: needed during that graph's launches
//   carried  requested in one capture, freed in a later one: needed from the first graph's launch to the second one's
//   kept     all else: always needed; also where dead or carried blocks have the same bytes
//   gone     requested and freed outside of captures, with none in between: no graph knows it
//
// Where the pool's state may be set back (cudagraph trees) tensors read what is carried without a block of their own:
// there it is kept.
//
// Addresses are the device's, sizes bytes. Thread-safe. Its records take heap memory; where there is none, the
// pool is not followable.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <vector>

#include "allocator/base/open_table.h"
#include "allocator/graphs/launch_listener.h"
#include "proto/model/pool_layout.h"
#include "proto/model/units.h"

namespace stalloc {

struct ByteRange {  // [begin, end)
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  bool operator==(const ByteRange&) const = default;
};

// The bytes that a launch of one graph needs, without those that are kept.
struct GraphUse {
  std::vector<ByteRange> dead;  // ascending, disjoint, merged where they touch
  struct Carried {
    ByteRange range;
    GraphId from = 0;
    GraphId to = 0;
    bool operator==(const Carried&) const = default;
  };
  std::vector<Carried> gives;  // from this graph; ascending. Those of several graphs may overlap
  std::vector<Carried> takes;
  bool operator==(const GraphUse&) const = default;
};

class PoolCatalog {
 public:
  PoolCatalog() = default;
  PoolCatalog(const PoolCatalog&) = delete;
  PoolCatalog& operator=(const PoolCatalog&) = delete;

  // Captures of one pool may not overlap: else it is not followable.
  void CaptureBegins(GraphId graph) noexcept;
  // `made`: there is a graph. Without one nothing is carried from it or to it: such blocks are kept.
  void CaptureEnds(GraphId graph, bool made = true) noexcept;
  // A capture is open.
  [[nodiscard]] bool capturing() const noexcept { return open_.load(std::memory_order_acquire) != 0; }

  // A request. `captured`: by a stream that is captured; else it is none of the open capture's.
  void Allocated(std::uint64_t address, Bytes bytes, bool captured = true) noexcept;
  // By the open capture, if there is one, on whichever thread. Addresses that are not live here are ignored.
  void Freed(std::uint64_t address) noexcept;
  // The graph is launched no more. What was carried to it is dead then, unless a graph captured in between may read it.
  void Destroyed(GraphId graph) noexcept;

  // All requests so far, in their order, for PoolLayout.
  [[nodiscard]] std::vector<PoolBlock> Requests() const;
  [[nodiscard]] std::uint32_t request_count() const;
  // Dead or carried, and not kept: ascending, merged where they touch. Nothing where the pool is not followable.
  [[nodiscard]] std::vector<ByteRange> Lendable() const;
  // What a launch of the graph leaves idle: it is dead or taken, and the graph gives it to none. Ascending, merged.
  // Nothing where the pool is not followable.
  [[nodiscard]] std::vector<ByteRange> IdleAfter(GraphId graph) const;
  // For what is lendable that which no graph gives to another; likewise.
  [[nodiscard]] std::vector<ByteRange> NeverGiven() const;
  // Captures so far: graphs are numbered from 1 to this.
  [[nodiscard]] GraphId graph_count() const;
  // Nothing where the graph is not known.
  [[nodiscard]] GraphUse UseOf(GraphId graph) const;
  // Changes whenever one of these may have.
  [[nodiscard]] std::uint64_t version() const noexcept { return version_.load(std::memory_order_acquire); }

  [[nodiscard]] bool followable() const noexcept { return why_not() == nullptr; }
  // Null: it is followable.
  [[nodiscard]] const char* why_not() const noexcept { return why_not_.load(std::memory_order_acquire); }
  // For good; the first reason stays. `why`: lives for ever.
  void SetUnfollowable(const char* why) noexcept;

  // Its state was taken, to be set back to. For good.
  void SetRestorable() noexcept;
  [[nodiscard]] bool restorable() const noexcept { return restorable_.load(std::memory_order_acquire); }

 private:
  static constexpr GraphId kNobody = 0xffffffffu;  // freed by no capture
  static constexpr GraphId kUnseen = 0xfffffffeu;  // and no capture was open while it lived
  struct Block {
    std::uint64_t address = 0;
    Bytes bytes = 0;
    GraphId requested_by = 0;  // 0: by no capture
    GraphId freed = 0;         // 0: live
    GraphId before = 0;        // captures that had begun when it was requested outside of one
  };
  struct Graph {
    bool made = true;
    bool destroyed = false;
  };
  enum class Class : std::uint8_t { kKept, kDead, kCarried, kGone };
  struct Uses {
    std::uint64_t version = 0;
    std::vector<ByteRange> lendable;
    std::vector<GraphUse> of_graphs;  // by id - 1
  };

  // All REQUIRE: mutex_ is held.
  void Changed() noexcept { version_.fetch_add(1, std::memory_order_release); }
  [[nodiscard]] Graph* Find(GraphId graph) noexcept;
  [[nodiscard]] Class ClassOf(const Block& block) const;
  [[nodiscard]] bool MayBeReadBetween(const Block& block) const;
  void CountUses() const;

  mutable std::mutex mutex_;  // guards all below but the atomics
  std::vector<Block> blocks_;
  OpenTable<std::uint32_t> live_{64};  // the block's index, by address
  std::vector<Graph> graphs_;          // by id - 1
  mutable Uses uses_;                  // as of its version
  std::atomic<GraphId> open_{0};
  std::atomic<std::uint64_t> version_{1};
  std::atomic<const char*> why_not_{nullptr};
  std::atomic<bool> restorable_{false};
};

}  // namespace stalloc
