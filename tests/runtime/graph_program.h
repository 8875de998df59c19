// GraphProgram: a program with captured graphs of one pool, over a QueuedDevice whose memory the host can read: kernels
// of graphs and of eager blocks run later, and look at every granule of the physical bytes.
//
//   pool      |= dead of A =|= carried A -> B =|= kept =|        captures A, B in this order
//   launches  A writes its dead block, reads it, writes the carried one; B reads that, and writes its own dead block,
//             which lies where A's does; each reads the kept block, which the program writes
//
// With Options::own the dead block comes last.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "allocator/driver/host_driver.h"
#include "allocator/graphs/graph_pools.h"
#include "allocator/runtime/device_runtime.h"
#include "proto/model/pool_layout.h"
#include "tests/runtime/fake_upstream.h"
#include "tests/runtime/log_capture.h"
#include "tests/runtime/plan_builder.h"
#include "tests/runtime/queued_copies.h"
#include "tests/runtime/queued_device.h"

namespace stalloc {

class GraphProgram {
 public:
  using Verdict = LaunchListener::Verdict;
  static constexpr Bytes kGranularity = Bytes{2} << 20;
  static constexpr Bytes kPool = 2 * kGranularity;        // as much of it is mapped
  static constexpr Bytes kDead = 6656 * kBlockAlignment;  // more than a handle's
  static constexpr Bytes kCarried = 4 * kBlockAlignment;
  static constexpr Bytes kKept = 2 * kBlockAlignment;
  static constexpr Bytes kArena = 4 * kGranularity;  // of the plan
  static constexpr std::uint32_t kNumber = 1;        // of the pool
  static constexpr Bytes kFarAway = 2 * PoolLayout::kExtentGap;
  static constexpr GraphId kA = 1;
  static constexpr GraphId kB = 2;

  // Memory of the arena's own: after the layout, where the dead block lies at its end; or instead of the first unit of
  // two, where all other blocks lie and the dead block begins.
  enum class Own : std::uint8_t { kNone, kAfter, kInstead };
  struct Options {
    std::uint64_t seed = 1;
    QueuedDevice::Habits habits = {};
    Bytes capacity = 0;              // of the device; 0: enough
    bool carries = true;             // false: the catalog is told that A has freed what it gives
    std::uint64_t layout_off = 0;    // the plan's hash is wrong by that
    std::uint32_t requests_off = 0;  // its number of the pool's requests likewise
    bool poisons = false;            // STALLOC_GRAPHS=poison
    Own own = Own::kNone;            // of the plan
    Bytes unmapped = 0;              // with kAfter: of the layout's end; the dead block's kernels leave it alone
    bool gathers = false;  // what is kept lies in a segment of its own, which the plan places after the other;
                           // REQUIRES: kNone
  };
  // With kAfter and kInstead there is another request of an iteration, the first. kAfter: its slot has kHalfInPool of
  // the dead bytes, and own memory.
  static constexpr Bytes kHalfInPool = Bytes{1} << 20;
  static constexpr Bytes kHalf = Bytes{4} << 20;
  static constexpr Bytes kOwn = 2 * kGranularity;  // more than it needs of that
  explicit GraphProgram(const Options& options)
      : host_(HostDriver::Create({.capacity = options.capacity, .granularity = kGranularity})),
        device_(std::make_unique<QueuedDevice>(*host_, options.seed, options.habits)),
        copies_(std::make_unique<QueuedCopies>(*device_)),
        mapped_(options.own == Own::kNone    ? kPool
                : options.own == Own::kAfter ? PoolLayout::kExtentUnit - options.unmapped
                                             : 2 * PoolLayout::kExtentUnit),
        dead_at_(options.own == Own::kNone    ? 0
                 : options.own == Own::kAfter ? PoolLayout::kExtentUnit - kDead
                                              : PoolLayout::kExtentUnit - kHalfInPool),
        carried_at_(options.own == Own::kNone ? kDead : 0),
        kept_at_(options.gathers ? kFarAway : carried_at_ + kCarried) {
    EXPECT_TRUE(device_->Reserve(kFarAway + PoolLayout::kExtentUnit, &pool_).ok());
    for (Bytes at = 0; at < mapped_; at += kGranularity) MapPool(pool_ + at);
    if (options.gathers) MapPool(kept());
    plan_ = MakePlan(options);
    runtime_ = std::make_unique<DeviceRuntime>(DeviceRuntime::Parts{.device = kCpuDevice,
                                                                    .upstream = &upstream_,
                                                                    .driver = device_.get(),
                                                                    .fence = device_.get(),
                                                                    .plan = &plan_,
                                                                    .dynamic = true,
                                                                    .copies = copies_.get(),
                                                                    .graphs = &pools_,
                                                                    .poisons_graphs = options.poisons});
    CaptureAll(options.carries);
  }
  ~GraphProgram() {
    runtime_ = nullptr;
    if (!memory_.empty()) LeavePool();
  }

  [[nodiscard]] GraphPool& pool() { return pools_.Get(kNumber, kCpuDevice); }
  [[nodiscard]] DeviceRuntime& runtime() { return *runtime_; }
  [[nodiscard]] const DevicePlan& plan() const { return plan_; }
  [[nodiscard]] QueuedDevice& device() { return *device_; }
  [[nodiscard]] Address address() const { return pool_; }
  [[nodiscard]] const LogCapture& log() const { return log_; }
  void Iteration() { runtime_->OnMark(IterationMark(iteration_++)); }

  LaunchListener::Answer Ask(GraphId graph, StreamHandle stream) {
    return pool().LaunchWith(graph, stream, /*captured=*/false, [&] { graph == kA ? RunA(stream) : RunB(stream); });
  }
  Verdict Launch(GraphId graph, StreamHandle stream) { return Ask(graph, stream).verdict; }
  // The program reads a block that a launch has freed.
  void ReadDead(StreamHandle stream) { Read(stream, dead(), kDead, &dead_key_); }
  // The program writes its static buffer.
  void WriteKept(StreamHandle stream) { Work(stream, kept(), kKept, &kept_key_); }

  struct Block {
    void* pointer = nullptr;
    Bytes bytes = 0;
    std::uint64_t key = 0;  // that its last kernel wrote
    StreamHandle stream = 0;
  };
  // The plan's two requests of an iteration: one that lies in the dead bytes, one in the carried ones.
  Block Allocate(Bytes bytes, StreamHandle stream) {
    Block block{runtime_->Allocate(bytes, stream, Origin::kProgram), bytes, 0, stream};
    Use(&block);
    return block;
  }
  void Use(Block* block) {
    if (!runtime_->Owns(block->pointer)) return;  // upstream's are no memory of the device's
    Work(block->stream, AddressOf(*block), block->bytes, &block->key);
  }
  void Free(const Block& block) { runtime_->Free(block.pointer, block.stream); }
  [[nodiscard]] static Address AddressOf(const Block& block) { return reinterpret_cast<Address>(block.pointer); }
  // It is in the arena's addresses for pools.
  [[nodiscard]] bool IsLent(const Block& block) const {
    const Arena& arena = *runtime_->arena();
    return arena.Contains(block.pointer) && AddressOf(block) - arena.base() >= arena.borrow_begin();
  }

  // In the pool.
  [[nodiscard]] Address dead() const { return pool_ + dead_at_; }
  [[nodiscard]] Address carried() const { return pool_ + carried_at_; }
  [[nodiscard]] Address kept() const { return pool_ + kept_at_; }
  [[nodiscard]] Bytes mapped() const { return mapped_; }
  // Of the bytes that lie there once the device is done, those that are 0xff.
  [[nodiscard]] Bytes FilledAt(Address address, Bytes bytes) {
    EXPECT_TRUE(device_->Synchronize().ok());
    const auto* const begin = reinterpret_cast<const unsigned char*>(address);
    return static_cast<Bytes>(std::count(begin, begin + bytes, 0xff));
  }

  // The pool's memory goes.
  void LeavePool() {
    EXPECT_TRUE(device_->Synchronize().ok());
    for (const auto& [address, handle] : memory_) {
      EXPECT_TRUE(device_->Unmap(address, kGranularity).ok());
      EXPECT_TRUE(device_->Release(handle).ok());
    }
    memory_.clear();
  }

 private:
  [[nodiscard]] std::vector<PoolBlock> Requests() const {
    return {{kept(), kKept}, {dead(), kDead}, {carried(), kCarried}, {dead(), kDead}};
  }

  void MapPool(Address address) {
    PhysicalHandle& handle = memory_.emplace_back(address, PhysicalHandle()).second;
    EXPECT_TRUE(device_->Create(kGranularity, &handle).ok());
    EXPECT_TRUE(device_->Map(address, kGranularity, handle).ok());
    EXPECT_TRUE(device_->SetAccess(address, kGranularity).ok());
  }

  [[nodiscard]] DevicePlan MakePlan(const Options& options) const {
    const PoolLayout layout(Requests());
    const Offset moved = options.gathers ? PoolLayout::kExtentUnit : 0;
    DevicePlan plan = PlanBuilder().ArenaOf(kArena).Build();
    plan.lent_pools = {{.number = kNumber,
                        .requests = static_cast<std::uint32_t>(Requests().size()) + options.requests_off,
                        .layout = layout.hash() + options.layout_off,
                        .bytes = layout.bytes()}};
    if (options.gathers) plan.lent_pools[0].first_pieces = {1};
    plan.lent_slots = {{*layout.OffsetOf(dead()) - moved, kDead}, {*layout.OffsetOf(carried()) - moved, kCarried}};
    if (options.own == Own::kAfter) {
      plan.lent_slots.insert(plan.lent_slots.begin(), {layout.bytes() - kHalfInPool, kHalf});
      plan.lent_pools[0].own = {{layout.bytes(), kOwn}};
    } else if (options.own == Own::kInstead) {
      plan.lent_slots.insert(plan.lent_slots.begin(), {PoolLayout::kExtentUnit - kHalf, kHalf});
      plan.lent_pools[0].own = {{0, PoolLayout::kExtentUnit}};
    }
    for (std::uint32_t i = 0; i < plan.lent_slots.size(); ++i) {
      Entry entry;
      entry.bytes = entry.min_bytes = entry.max_bytes = plan.lent_slots[i].capacity;
      entry.expected_life = 1;
      entry.lent_slot = i;
      plan.cycle[0].entries.push_back(entry);
    }
    return plan;
  }

  void CaptureAll(bool carries) {
    PoolCatalog& catalog = pool().catalog();
    EXPECT_TRUE(pool().Opens());
    catalog.Allocated(kept(), kKept, /*captured=*/false);
    EXPECT_EQ(pool().CaptureBegins(), kA);
    catalog.Allocated(dead(), kDead);
    catalog.Freed(dead());
    catalog.Allocated(carried(), kCarried);
    if (!carries) catalog.Freed(carried());
    pool().CaptureEnds(kA, true);
    EXPECT_EQ(pool().CaptureBegins(), kB);
    if (carries) catalog.Freed(carried());
    catalog.Allocated(dead(), kDead);
    catalog.Freed(dead());
    pool().CaptureEnds(kB, true);
    pool().Closes();
  }

  [[nodiscard]] Bytes DeadMapped() const { return std::min(kDead, mapped_ - dead_at_); }

  void RunA(StreamHandle stream) {
    Read(stream, kept(), kKept, &kept_key_);
    Overwrite(stream, dead(), DeadMapped(), &dead_key_);
    Read(stream, dead(), DeadMapped(), &dead_key_);
    Overwrite(stream, carried(), kCarried, &carried_key_);
  }
  void RunB(StreamHandle stream) {
    Read(stream, kept(), kKept, &kept_key_);
    Read(stream, carried(), kCarried, &carried_key_);
    Overwrite(stream, dead(), DeadMapped(), &dead_key_);
    Read(stream, dead(), DeadMapped(), &dead_key_);
  }
  // A kernel that does not look at what was there.
  void Overwrite(StreamHandle stream, Address address, Bytes bytes, std::uint64_t* key) {
    *key = 0;
    Work(stream, address, bytes, key);
  }
  // Kernels write whatever they read.
  void Read(StreamHandle stream, Address address, Bytes bytes, std::uint64_t* key) {
    if (*key != 0) Work(stream, address, bytes, key);
  }
  void Work(StreamHandle stream, Address address, Bytes bytes, std::uint64_t* key) {
    device_->Launch(stream, {.address = address, .bytes = bytes, .expects = *key, .writes = ++last_key_});
    *key = last_key_;
  }

  LogCapture log_;
  FakeUpstream upstream_;
  std::unique_ptr<HostDriver> host_;
  std::unique_ptr<QueuedDevice> device_;
  std::unique_ptr<QueuedCopies> copies_;
  const Bytes mapped_;   // of the pool
  const Bytes dead_at_;  // in it
  const Bytes carried_at_;
  const Bytes kept_at_;
  Address pool_ = 0;                                        // as the native allocator has it
  std::vector<std::pair<Address, PhysicalHandle>> memory_;  // the pool's
  GraphPools pools_;
  DevicePlan plan_;
  std::unique_ptr<DeviceRuntime> runtime_;
  std::uint64_t last_key_ = 0;
  std::uint64_t dead_key_ = 0;
  std::uint64_t carried_key_ = 0;
  std::uint64_t kept_key_ = 0;
  int iteration_ = 0;
};

// A program, whose kernels must find what they are to find.
class GraphProgramTest : public testing::Test {
 protected:
  void Start(const GraphProgram::Options& options = {}) {
    program_.emplace(options);
    program_->WriteKept(7);
  }
  // An iteration whose launches open the pool.
  void Begin(StreamHandle stream = 7) {
    program_->Iteration();
    ASSERT_EQ(program_->Launch(GraphProgram::kA, stream), GraphProgram::Verdict::kLaunch);
    ASSERT_EQ(program_->Launch(GraphProgram::kB, stream), GraphProgram::Verdict::kLaunch);
  }
  void TearDown() override {
    if (!program_.has_value()) return;
    const QueuedDevice::Findings findings = program_->device().GetFindings();
    EXPECT_EQ(findings.count(), 0u) << findings.first;
  }
  [[nodiscard]] RuntimeStats::Graphs Graphs() { return program_->runtime().Stats().graphs; }

  std::optional<GraphProgram> program_;
};

}  // namespace stalloc
