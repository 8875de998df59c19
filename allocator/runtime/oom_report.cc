#include "allocator/runtime/oom_report.h"

#include <unistd.h>

#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <string_view>
#include <utility>

#include "allocator/base/clock.h"
#include "allocator/base/log.h"
#include "allocator/base/mutex.h"
#include "allocator/runtime/report_file.h"
#include "allocator/runtime/session.h"
#include "allocator/runtime/stats_fields.h"
#include "proto/model/json_writer.h"

namespace stalloc {
namespace {

using Writer = BasicJsonWriter<ReportFile>;

constexpr std::size_t kEntriesShown = 4;  // of the plan, for one block

struct Hex {
  explicit Hex(std::uint64_t address) noexcept { std::snprintf(text, sizeof(text), "0x%" PRIx64, address); }
  char text[24];
};

void WriteHead(const OutOfMemoryFacts& facts, std::uint32_t rank, Writer* json) {
  json->Field("report", "stalloc out of memory");
  json->Field("version", 1);
  json->Field("stalloc_version", LibraryVersion());
  json->Field("rank", rank);
  json->Field("pid", static_cast<std::int64_t>(getpid()));
  json->Field("device", facts.device);
  json->BeginObject("request");
  json->Field("bytes", facts.requested);
  json->Field("stream", facts.stream);
  json->EndObject();
  if (facts.memory.total == 0) {
    json->Null("device_memory");
  } else {
    json->BeginObject("device_memory");
    json->Field("free", facts.memory.free);
    json->Field("total", facts.memory.total);
    json->EndObject();
  }
  json->BeginObject("figures");
  WriteStats(facts.stats, json);
  json->EndObject();
}

void WritePlan(const OutOfMemoryFacts& facts, Writer* json) {
  if (facts.plan == nullptr) return (void)json->Null("plan");
  const EngineStats& engine = facts.stats.engine;
  json->BeginObject("plan");
  json->Field("arena_base", Hex(facts.arena->base()).text);
  json->Field("arena_mapped_bytes", facts.arena->mapped_bytes());
  json->Field("arena_planned_bytes", facts.plan->arena_bytes);
  json->Field("predicted_peak_live_bytes", facts.plan->predicted.peak_live_bytes);
  json->Field("pending_blocks", engine.pending_blocks);
  json->Field("pending_bytes", engine.pending_bytes);
  json->Field("retained_blocks", engine.retained_blocks);
  json->Field("sync_losses", engine.sync_losses);
  json->Field("reanchorings", engine.reanchorings);
  json->Field("times_mapped_again", facts.stats.lent.times_mapped_again);
  json->Field("times_not_mapped", facts.stats.lent.times_not_mapped);
  json->Field("iterations", facts.position.iterations);
  json->Field("fenced", facts.position.fenced);
  const Script* const script = facts.position.in_script ? ScriptOf(*facts.plan, facts.position.script) : nullptr;
  if (script == nullptr) {
    json->Null("script");
  } else {
    json->Field("script", facts.position.script);
    json->Field("phase", facts.position.phase);
    json->Field("phases", script->phases.size());
    json->Field("entry", facts.position.entry);
    json->Field("entries", script->entries.size());
    json->Field("in_sync", facts.position.in_sync);
  }
  const Entry* const expected = ExpectedEntry(facts);
  expected != nullptr ? json->Field("expected_bytes", expected->bytes) : json->Null("expected_bytes");
  json->EndObject();
}

void WriteEntries(const PlanEntries& entries, const LiveBlock& block, Writer* json) {
  const std::span<const PlanEntries::Named> candidates = entries.At(block.offset, block.bytes);
  json->Field("candidates", candidates.size());
  json->BeginArray("entries");
  for (const PlanEntries::Named& entry : candidates.first(std::min(candidates.size(), kEntriesShown))) {
    json->BeginArray();
    json->Value(entry.script);
    json->Value(entry.entry);
    json->EndArray();
  }
  json->EndArray();
}

void WritePhase(const LiveBlocks::Place& place, Writer* json) {
  char text[128] = "set-up";
  if (place.in_iteration) {
    std::snprintf(text, sizeof(text), "iter %" PRId32 "%s%s", place.iteration, *place.phase == '\0' ? "" : ", ",
                  place.phase);
  }
  json->Field("phase", text);
}

// Where the block was requested; nothing of one that came in another way (a pool's that was set back).
void WriteOrigin(const OutOfMemoryFacts& facts, std::uint64_t address, Writer* json) {
  LiveBlocks::Block block;
  if (facts.live == nullptr || !facts.live->Find(address, &block)) return;
  const LiveBlocks::Place place = facts.live->PlaceOf(block.place);
  json->Field("number", block.number);
  if (block.source == BlockSource::kUpstream) json->Field("requested", block.requested);
  WritePhase(place, json);
  if (*place.layer != '\0') json->Field("layer", place.layer);
}

// For an exact trace's heap, or of an arena that serves no plan: before one is taken up, and from then on the earlier
// one.
void WriteOwnBlock(const OutOfMemoryFacts& facts, const LiveBlocks::Block& block, Writer* json) {
  json->BeginObject();
  json->Field("address", Hex(block.address).text);
  json->Field("bytes", BlockBytes(block.requested));
  json->Field("requested", block.requested);
  json->Field("stream", block.stream);
  json->Field("from", BlockSourceName(block.source));
  WriteOrigin(facts, block.address, json);
  json->EndObject();
}

void WriteArenaBlock(const OutOfMemoryFacts& facts, const LiveBlock& block, Writer* json) {
  json->BeginObject();
  json->Field("address", Hex(facts.arena->base() + block.offset).text);
  json->Field("bytes", block.bytes);
  json->Field("requested", block.requested);
  json->Field("stream", block.stream);
  json->Field("from", "arena");
  json->Field("pending", block.freed_pending);
  WriteOrigin(facts, facts.arena->base() + block.offset, json);
  if (facts.entries != nullptr) WriteEntries(*facts.entries, block, json);
  json->EndObject();
}

void WriteUpstreamBlock(const OutOfMemoryFacts& facts, const Ledger::UpstreamBlock& block, Writer* json) {
  json->BeginObject();
  json->Field("address", Hex(block.address).text);
  json->Field("bytes", block.bytes);
  json->Field("stream", block.stream);
  json->Field("from", "upstream");
  WriteOrigin(facts, block.address, json);
  json->EndObject();
}

const char* NameOf(RecentEvent::Kind kind) {
  switch (kind) {
    case RecentEvent::Kind::kAllocated:
      return "allocated";
    case RecentEvent::Kind::kFreed:
      return "freed";
    case RecentEvent::Kind::kStreamRecorded:
      return "stream_recorded";
    case RecentEvent::Kind::kMark:
      return "mark";
    case RecentEvent::Kind::kOutOfMemory:
      return "out_of_memory";
  }
  return "?";
}

void WriteEvent(const RecentEvent& event, std::int64_t now_ns, Writer* json) {
  json->BeginObject();
  json->Field("us", (now_ns - event.time_ns) / 1000);
  json->Field("event", NameOf(event.kind));
  if (event.kind == RecentEvent::Kind::kMark) {
    json->Field("mark", MarkKindName(static_cast<MarkKind>(event.detail >> 8)));
    json->Field("edge", static_cast<MarkEdge>(event.detail & 0xff) == MarkEdge::kBegin ? "begin" : "end");
  } else {
    if (event.address != 0) json->Field("address", Hex(event.address).text);
    if (event.bytes != 0) json->Field("bytes", event.bytes);
    json->Field("stream", event.stream);
  }
  if (event.kind == RecentEvent::Kind::kAllocated) {
    json->Field("from", BlockSourceName(static_cast<BlockSource>(event.detail >> 8)));
    const auto reason = static_cast<MissReason>(event.detail & 0xff);
    if (reason != MissReason::kNone) json->Field("miss", MissReasonName(reason));
  }
  json->EndObject();
}

}  // namespace

OomReports::OomReports(std::string directory, std::uint32_t rank) : directory_(std::move(directory)), rank_(rank) {
  arena_blocks_.Populate();
  upstream_blocks_.Populate();
  own_blocks_.Populate();
  events_.Populate();
}

const char* OomReports::Write(const OutOfMemoryFacts& facts) noexcept {
  const std::int64_t now_ns = MonotonicNanoseconds();
  const LockGuard lock(mutex_);
  if (written_ == kMost) return "";
  char* const path = paths_[written_++];
  std::snprintf(path, sizeof(paths_[0]), "%s/rank%05u.pid%d.oom%d.json", directory_.c_str(), rank_,
                static_cast<int>(getpid()), written_);
  Writer json({}, path);
  json.BeginObject();
  WriteHead(facts, rank_, &json);
  if (facts.live != nullptr) WritePhase(facts.live->PlaceOf(facts.live->present()), &json);
  WritePlan(facts, &json);
  const std::size_t in_arena =
      facts.engine != nullptr ? facts.engine->CopyLiveBlocks({arena_blocks_.data(), kMostBlocks}) : 0;
  const std::size_t in_upstream =
      facts.ledger != nullptr ? facts.ledger->CopyUpstreamBlocks({upstream_blocks_.data(), kMostBlocks}) : 0;
  const Address planned = facts.arena != nullptr ? facts.arena->base() : 0;
  const Bytes reserved = facts.arena != nullptr ? facts.arena->borrow_begin() : 0;
  const std::size_t own =
      facts.live != nullptr ? facts.live->CopyOwn(planned, reserved, {own_blocks_.data(), kMostBlocks}) : 0;
  json.BeginArray("live_blocks");
  for (std::size_t i = 0; i < std::min(in_arena, kMostBlocks); ++i) WriteArenaBlock(facts, arena_blocks_[i], &json);
  for (std::size_t i = 0; i < std::min(own, kMostBlocks); ++i) WriteOwnBlock(facts, own_blocks_[i], &json);
  for (std::size_t i = 0; i < std::min(in_upstream, kMostBlocks); ++i) {
    WriteUpstreamBlock(facts, upstream_blocks_[i], &json);
  }
  json.EndArray();
  json.Field("live_blocks_omitted", in_arena - std::min(in_arena, kMostBlocks) + own - std::min(own, kMostBlocks) +
                                        in_upstream - std::min(in_upstream, kMostBlocks));
  json.BeginArray("events");
  const std::size_t events =
      facts.events != nullptr
          ? facts.events->Copy(std::span<RecentEvent, RecentEvents::kCapacity>(events_.data(), events_.size()))
          : 0;
  for (std::size_t i = 0; i < events; ++i) WriteEvent(events_[i], now_ns, &json);
  json.EndArray();
  json.EndObject();
  json.text() += '\n';
  if (const int error = json.text().Commit(); error != 0) {
    Log(LogSeverity::kWarning, "no out-of-memory report: cannot write %s: %s", path, std::strerror(error));
    path[0] = '\0';
  }
  return path;
}

}  // namespace stalloc
