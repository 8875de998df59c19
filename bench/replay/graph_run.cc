#include "bench/replay/graph_run.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "allocator/driver/host_driver.h"
#include "allocator/graphs/graph_pools.h"
#include "allocator/runtime/planned_space.h"
#include "bench/replay/expandable_upstream.h"
#include "bench/replay/lagging_device.h"
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

// "CUDA graph 3 capture"
std::optional<std::uint32_t> GraphOf(const Mark& mark, std::string_view suffix) {
  std::string_view name = mark.name;
  if (!IsGraphMark(mark) || !name.ends_with(suffix)) return std::nullopt;
  name.remove_prefix(kGraphMarkPrefix.size());
  std::uint32_t number = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), number);
  return error == std::errc() && std::string_view(end, suffix.size()) == suffix ? std::optional(number) : std::nullopt;
}

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
      pools_.Get(block.pool, device_index_).catalog().Allocated(address, BlockBytes(event.bytes), capturing_ != 0);
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
    const bool begins = mark.edge == MarkEdge::kBegin;
    if (const auto captured = GraphOf(mark, kCaptureMarkSuffix)) return TakeCapture(*captured, begins);
    if (const auto launched = GraphOf(mark, kReplayMarkSuffix)) {
      return begins ? Launch(*launched) : absl::OkStatus();
    }
    if (mark.kind == MarkKind::kIteration && begins) iterations_.push_back(next_);
    runtime_->OnMark(mark);
    return absl::OkStatus();
  }

  // Its pool is that of its first request.
  absl::Status TakeCapture(std::uint32_t graph, bool begins) {
    if (!begins) {
      GraphPool& pool = pools_.Get(std::exchange(capturing_, 0), device_index_);
      pool.CaptureEnds(graphs_.at(graph).second, /*made=*/true);
      pool.Closes();
      return absl::OkStatus();
    }
    const auto is_captured = [this](const TraceEvent& event) {
      return event.kind == EventKind::kAlloc && blocks_[event.allocation].pool != 0;
    };
    const auto first =
        std::find_if(trace_.events.begin() + static_cast<std::ptrdiff_t>(next_), trace_.events.end(), is_captured);
    if (first == trace_.events.end()) {
      return absl::InvalidArgumentError(absl::StrCat("graph ", graph, " has no captured request"));
    }
    runtime_->EmptyCache();  // as torch.cuda.graph does
    capturing_ = blocks_[first->allocation].pool;
    if (absl::Status status = Open(capturing_); !status.ok()) return status;
    GraphPool& pool = pools_.Get(capturing_, device_index_);
    if (!pool.Opens()) return absl::InternalError("what is lent of a pool could not be taken back");
    graphs_[graph] = {capturing_, pool.CaptureBegins()};
    return absl::OkStatus();
  }

  absl::Status Open(std::uint32_t number) {
    PoolMemory& memory = memory_.at(number);
    if (memory.is_mapped()) return absl::OkStatus();
    runtime_->UpstreamPoolOpens();
    const DriverStatus status = memory.Map(*driver_);
    upstream_.HoldPool(memory.bytes());
    runtime_->UpstreamPoolCloses();
    return status.ok() ? absl::OkStatus() : absl::InternalError(absl::StrCat("a pool cannot be mapped: ", status.call));
  }

  absl::Status Launch(std::uint32_t graph) {
    const auto found = graphs_.find(graph);
    if (found == graphs_.end()) {
      return absl::InvalidArgumentError(absl::StrCat("graph ", graph, " is launched, but was not captured"));
    }
    const auto [pool, id] = found->second;
    const auto answer = pools_.Get(pool, device_index_).LaunchWith(id, streams_.front(), /*captured=*/false, [] {});
    result_.refused += answer.verdict == LaunchListener::Verdict::kLaunch ? 0 : 1;
    return absl::OkStatus();
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
  std::map<std::uint32_t, std::pair<std::uint32_t, GraphId>> graphs_;  // by number: its pool, and its number there
  std::uint32_t capturing_ = 0;                                        // the pool
  std::vector<std::size_t> iterations_;                                // events that begin them
  std::size_t next_ = 0;
  GraphRun result_;
};

}  // namespace

absl::StatusOr<GraphRun> ReplayGraphs(const Trace& trace, const DevicePlan& plan, const GraphServing& serving) {
  return GraphReplayer(trace, plan, serving).Run();
}

}  // namespace stalloc::bench
