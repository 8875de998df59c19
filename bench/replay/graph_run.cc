#include "bench/replay/graph_run.h"

#include <algorithm>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "allocator/driver/host_driver.h"
#include "allocator/graphs/graph_pools.h"
#include "allocator/runtime/planned_space.h"
#include "bench/replay/expandable_upstream.h"
#include "bench/replay/lagging_device.h"
#include "planner/analysis/graph_captures.h"
#include "planner/analysis/traced_rank.h"
#include "proto/model/pool_layout.h"

namespace stalloc::bench {
namespace {

constexpr Bytes kH200Bytes = Bytes{139} << 30;

// A pool's memory: extents that lie to themselves as when traced, mapped as a whole when the pool is opened first.
class PoolMemory {
 public:
  explicit PoolMemory(const std::vector<PoolBlock>& requests) : layout_(requests) {}

  [[nodiscard]] bool is_known() const { return !layout_.empty(); }
  [[nodiscard]] bool is_mapped() const { return !begins_.empty(); }
  [[nodiscard]] Bytes bytes() const { return layout_.bytes(); }

  DriverStatus Map(VmmDriver& driver) {
    DriverStatus status;
    for (const PoolLayout::Extent& extent : layout_.extents()) {
      Address begin = 0;
      status = driver.Reserve(extent.bytes + 2 * PoolLayout::kExtentGap, &begin);
      for (Bytes at = 0; at < extent.bytes && status.ok(); at += PoolLayout::kExtentUnit) {
        PhysicalHandle handle{};
        status = driver.Create(PoolLayout::kExtentUnit, &handle);
        if (status.ok()) status = driver.Map(begin + at, PoolLayout::kExtentUnit, handle);
      }
      if (status.ok()) status = driver.SetAccess(begin, extent.bytes);
      if (!status.ok()) return status;
      begins_.push_back(begin);
    }
    return status;
  }

  // Of a block that lay at `traced`.
  [[nodiscard]] Address AddressOf(std::uint64_t traced) const {
    const auto& extents = layout_.extents();
    const auto has_it = [&](const PoolLayout::Extent& extent) { return traced - extent.address < extent.bytes; };
    const auto extent = std::ranges::find_if(extents, has_it);
    return begins_[static_cast<std::size_t>(extent - extents.begin())] + (traced - extent->address);
  }

 private:
  PoolLayout layout_;
  std::vector<Address> begins_;  // by extent
};

// Captured requests are served where they lay.
class UpstreamWithPools final : public Upstream {
 public:
  void* Allocate(Bytes requested, StreamHandle stream) override {
    return captured_ != 0 ? reinterpret_cast<void*>(std::exchange(captured_, 0)) : eager_.Allocate(requested, stream);
  }
  void Free(void* pointer) noexcept override {
    if (!std::exchange(frees_captured_, false)) eager_.Free(pointer);
  }
  void RecordStream(void* /*pointer*/, StreamHandle /*stream*/) override {}
  void ReleaseCached() noexcept override { eager_.ReleaseCached(); }
  [[nodiscard]] Held HeldBytes() const override {
    const Bytes held = eager_.held() + pools_;
    return {held, std::max(held, eager_.HeldBytes().peak)};
  }
  [[nodiscard]] Bytes HeldApart(Bytes /*live*/) const override { return pools_; }

  void ServeNextAt(Address address) { captured_ = address; }
  void NextFreeIsCaptured() { frees_captured_ = true; }
  void HoldPool(Bytes bytes) { pools_ += bytes; }
  [[nodiscard]] Bytes eager() const { return eager_.held(); }
  [[nodiscard]] Bytes pools() const { return pools_; }

 private:
  ExpandableUpstream eager_;
  Address captured_ = 0;
  bool frees_captured_ = false;
  Bytes pools_ = 0;
};

class GraphReplayer {
 public:
  GraphReplayer(const Trace& trace, const DevicePlan& plan, const GraphServing& serving)
      : trace_(trace), serving_(serving), device_index_(plan.device), blocks_(trace.allocations) {
    driver_ = HostDriver::Create({.capacity = kH200Bytes});
    if (driver_ == nullptr) return;
    device_ = std::make_unique<LaggingDevice>(*driver_, /*lag=*/0);
    runtime_ = std::make_unique<DeviceRuntime>(DeviceRuntime::Parts{.device = plan.device,
                                                                    .upstream = &upstream_,
                                                                    .driver = device_.get(),
                                                                    .fence = device_.get(),
                                                                    .plan = &plan,
                                                                    .dynamic = true,
                                                                    .keep_free = serving.keep_free,
                                                                    .graphs = &pools_});
  }

  absl::StatusOr<GraphRun> Run() {
    if (driver_ == nullptr) return absl::InternalError("no host driver: the system gives no memfd");
    if (absl::Status status = FindPools(); !status.ok()) return status;
    if (absl::Status status = FindCaptures(); !status.ok()) return status;
    const std::size_t end = trace_.events.size();
    absl::Status status = Take(0, end);
    const std::size_t last = std::min<std::size_t>(serving_.last, iterations_.size());
    const std::size_t again = last == 0 ? end : iterations_[iterations_.size() - last];
    for (std::uint32_t time = 0; time < serving_.times && status.ok(); ++time) status = Take(again, end);
    if (!status.ok()) return status;
    result_.stats = runtime_->Stats();
    return std::move(result_);
  }

 private:
  struct Block {
    std::uint32_t pool = 0;  // PoolPlusOne; 0: eager
    std::uint64_t traced = 0;
    void* pointer = nullptr;
  };

  absl::Status FindPools() {
    std::map<std::uint32_t, std::vector<PoolBlock>> requests;
    for (const TraceEvent& event : trace_.events) {
      if (event.kind != EventKind::kAlloc) continue;
      Block& block = blocks_[event.allocation];
      block.pool = PoolPlusOne(event.flags);
      block.traced = event.address;
      if (block.pool != 0) requests[block.pool].push_back({event.address, BlockBytes(event.bytes)});
    }
    for (const auto& [number, of_pool] : requests) {
      if (!memory_.try_emplace(number, of_pool).first->second.is_known()) {
        return absl::InvalidArgumentError(absl::StrCat("pool ", number, " has a request without an address"));
      }
    }
    for (const StreamInfo& stream : trace_.streams) {
      streams_.resize(std::max<std::size_t>(streams_.size(), stream.ordinal + 1));
      streams_[stream.ordinal] = stream.handle;
    }
    return absl::OkStatus();
  }

  absl::Status FindCaptures() {
    const absl::StatusOr<planner::TracedRank> traced = planner::TakeTrace(trace_);
    if (!traced.ok()) return traced.status();
    if (traced->devices.size() != 1) return absl::InvalidArgumentError("the trace is not of one device");
    found_ = planner::FindGraphCaptures(*traced, traced->devices.front());
    graphs_.resize(found_.captures.size());
    for (std::uint32_t i = 0; i < found_.captures.size(); ++i) {
      if (found_.captures[i].requested.empty()) {
        return absl::InvalidArgumentError(absl::StrCat("graph ", found_.captures[i].number, " requests nothing"));
      }
      capture_begins_[found_.captures[i].begin] = i;
      capture_ends_[found_.captures[i].end] = i;
    }
    for (const planner::GraphLaunch& launch : found_.launches) launches_[launch.event] = launch.capture;
    return absl::OkStatus();
  }

  absl::Status Take(std::size_t begin, std::size_t end) {
    absl::Status status;
    for (next_ = begin; next_ < end && status.ok(); ++next_) {
      const TraceEvent& event = trace_.events[next_];
      if (event.kind == EventKind::kAlloc) {
        status = Allocate(event);
      } else if (event.kind == EventKind::kFree) {
        Free(blocks_[event.allocation]);
      } else if (event.kind == EventKind::kRecordStream) {
        runtime_->RecordStream(blocks_[event.allocation].pointer, streams_[event.stream]);
      } else if (event.kind == EventKind::kMark) {
        status = TakeMark(trace_.marks[event.mark]);
      }
      WatchHeld();
    }
    return status;
  }

  absl::Status Allocate(const TraceEvent& event) {
    Block& block = blocks_[event.allocation];
    if (block.pool != 0) {
      if (absl::Status status = Open(block.pool); !status.ok()) return status;
      const Address address = memory_.at(block.pool).AddressOf(block.traced);
      pools_.Get(block.pool, device_index_).catalog().Allocated(address, BlockBytes(event.bytes), capturing_);
      upstream_.ServeNextAt(address);
    }
    device_->Advance();
    const Origin origin = block.pool != 0 ? Origin::kCaptured : Origin::kProgram;
    block.pointer = runtime_->Allocate(event.bytes, streams_[event.stream], origin);
    return absl::OkStatus();
  }

  void Free(const Block& block) {
    if (block.pool != 0) {
      pools_.Get(block.pool, device_index_).catalog().Freed(reinterpret_cast<Address>(block.pointer));
      upstream_.NextFreeIsCaptured();
    }
    runtime_->Free(block.pointer);
  }

  absl::Status TakeMark(const Mark& mark) {
    if (const auto begins = capture_begins_.find(next_); begins != capture_begins_.end()) return Begin(begins->second);
    if (const auto ends = capture_ends_.find(next_); ends != capture_ends_.end()) return End(ends->second);
    if (const auto launched = launches_.find(next_); launched != launches_.end()) return Launch(launched->second);
    if (IsGraphMark(mark)) return absl::OkStatus();
    if (mark.kind == MarkKind::kIteration && mark.edge == MarkEdge::kBegin) iterations_.push_back(next_);
    runtime_->OnMark(mark);
    return absl::OkStatus();
  }

  // Its pool is that of its first request.
  absl::Status Begin(std::uint32_t capture) {
    runtime_->EmptyCache();  // as torch.cuda.graph does
    const std::uint32_t number = blocks_[found_.captures[capture].requested.front()].pool;
    if (absl::Status status = Open(number); !status.ok()) return status;
    GraphPool& pool = pools_.Get(number, device_index_);
    if (!pool.Opens()) return absl::InternalError("what is lent of a pool could not be taken back");
    graphs_[capture] = {&pool, pool.CaptureBegins()};
    capturing_ = true;
    return absl::OkStatus();
  }

  absl::Status End(std::uint32_t capture) {
    const auto [pool, id] = graphs_[capture];
    pool->CaptureEnds(id, /*made=*/true);
    pool->Closes();
    capturing_ = false;
    return absl::OkStatus();
  }

  absl::Status Launch(std::uint32_t capture) {
    const auto [pool, id] = graphs_[capture];
    const auto answer = pool->LaunchWith(id, streams_.front(), /*captured=*/false, [] {});
    result_.refused += answer.verdict == LaunchListener::Verdict::kLaunch ? 0 : 1;
    return absl::OkStatus();
  }

  absl::Status Open(std::uint32_t number) {
    PoolMemory& memory = memory_.at(number);
    if (memory.is_mapped()) return absl::OkStatus();
    runtime_->EmptyCache();  // as the adapter does
    runtime_->UpstreamPoolOpens();
    const DriverStatus status = memory.Map(*driver_);
    upstream_.HoldPool(memory.bytes());
    runtime_->UpstreamPoolCloses();
    return status.ok() ? absl::OkStatus() : absl::InternalError(absl::StrCat("a pool cannot be mapped: ", status.call));
  }

  void WatchHeld() {
    GraphRun::Held held{.upstream = upstream_.eager(), .pools = upstream_.pools()};
    for (const PlannedSpace* const space : runtime_->spaces()) held.arena += space->arena().mapped_bytes();
    if (held.sum() > result_.peak.sum()) result_.peak = held;
  }

  const Trace& trace_;
  const GraphServing serving_;
  const DeviceIndex device_index_;
  UpstreamWithPools upstream_;
  GraphPools pools_;
  std::unique_ptr<HostDriver> driver_;
  std::unique_ptr<LaggingDevice> device_;
  std::unique_ptr<DeviceRuntime> runtime_;  // after what it uses: destroyed first
  std::vector<Block> blocks_;               // by allocation
  std::vector<StreamHandle> streams_;       // by ordinal
  std::map<std::uint32_t, PoolMemory> memory_;
  planner::GraphCaptures found_;
  std::map<std::uint64_t, std::uint32_t> capture_begins_;  // captures, by event; likewise
  std::map<std::uint64_t, std::uint32_t> capture_ends_;
  std::map<std::uint64_t, std::uint32_t> launches_;
  std::vector<std::pair<GraphPool*, GraphId>> graphs_;  // by capture
  bool capturing_ = false;
  std::vector<std::size_t> iterations_;  // events that begin them
  std::size_t next_ = 0;
  GraphRun result_;
};

}  // namespace

absl::StatusOr<GraphRun> ReplayGraphs(const Trace& trace, const DevicePlan& plan, const GraphServing& serving) {
  return GraphReplayer(trace, plan, serving).Run();
}

}  // namespace stalloc::bench
