// The figures of one device as fields of a JSON object that is open in the writer; docs/summary.md says what they
// mean.
#pragma once

#include <cstddef>

#include "allocator/runtime/device_runtime.h"
#include "proto/model/json_writer.h"

namespace stalloc {

template <typename Writer>
void WriteMisses(const RuntimeStats& stats, Writer* json) {
  json->BeginObject("misses");
  for (std::size_t i = static_cast<std::size_t>(MissReason::kNone) + 1;
       i < static_cast<std::size_t>(MissReason::kCount); ++i) {
    json->Field(MissReasonName(static_cast<MissReason>(i)), stats.engine.misses[i]);
  }
  json->EndObject();
}

template <typename Writer>
void WriteStats(const RuntimeStats& stats, Writer* json) {
  json->Field("requests", stats.requests);
  json->Field("planned_hits", stats.planned_hits);
  json->Field("dynamic_hits", stats.dynamic_hits);
  json->Field("heap_hits", stats.heap_hits);
  json->Field("upstream", stats.upstream);
  WriteMisses(stats, json);
  json->Field("unknown_frees", stats.unknown_frees);
  json->Field("stream_events", stats.engine.stream_events);
  json->Field("stream_waits", stats.engine.stream_waits);
  json->Field("iterations", stats.iterations);
  json->BeginObject("steady");
  json->Field("requests", stats.steady.requests);
  json->Field("hits", stats.steady.hits);
  json->Field("fenced", stats.steady.fenced);
  json->EndObject();
  json->Field("gave_up", stats.gave_up);
  json->Field("left_plan", stats.left);
  json->Field("departed", stats.departed);
  json->Field("unlike", stats.unlike);
  json->Field("card_was_full", stats.card_was_full);
  json->Field("live_bytes", stats.live_bytes);
  json->Field("peak_live_bytes", stats.run.live_bytes);
  json->Field("arena_bytes", stats.run.arena_bytes);
  json->Field("arena_live_bytes", stats.arena_live_bytes);
  json->Field("arena_lent_bytes", stats.lent.lent_bytes);
  json->Field("arena_times_lent", stats.lent.times_given_back);
  json->Field("arena_times_grown", stats.lent.times_grown);
  json->Field("arena_times_mapped_again", stats.lent.times_mapped_again);
  json->Field("arena_map_seconds", static_cast<double>(stats.lent.map_nanoseconds) * 1e-9);
  json->Field("arena_times_moved", stats.lent.times_moved);
  json->Field("arena_moved_bytes", stats.lent.moved_bytes);
  json->Field("arena_times_waited", stats.lent.times_waited);
  json->Field("arena_wait_seconds", static_cast<double>(stats.lent.wait_nanoseconds) * 1e-9);
  json->Field("arena_move_seconds", static_cast<double>(stats.lent.move_nanoseconds) * 1e-9);
  json->BeginObject("graph_pools");
  json->Field("hits", stats.graphs.hits);
  json->Field("times_lent", stats.graphs.times_lent);
  json->Field("surprises", stats.graphs.surprises);
  json->Field("lent_bytes", stats.graphs.lent_bytes);
  json->Field("most_lent_bytes", stats.graphs.most_bytes);
  json->Field("filled_bytes", stats.graphs.filled_bytes);
  json->EndObject();
  json->Field("heap_bytes", stats.heap_bytes);
  json->Field("upstream_reserved_bytes", stats.upstream_reserved_bytes);
  json->Field("upstream_reserved_peak_bytes", stats.run.upstream_bytes);
  json->Field("held_peak_bytes", stats.run.held_bytes);
  json->Field("efficiency", stats.run.efficiency);
  if (stats.since_plan.has_value()) {
    json->BeginObject("since_plan");
    json->Field("iterations", stats.since_plan->iterations);
    json->Field("peak_live_bytes", stats.since_plan->peak_live_bytes);
    json->Field("held_peak_bytes", stats.since_plan->held_peak_bytes);
    json->Field("efficiency", stats.since_plan->efficiency);
    json->EndObject();
  }
  if (stats.plan.has_value()) {
    json->BeginObject("plan");
    json->Field("arena_bytes", stats.plan->arena_bytes);
    json->Field("efficiency", stats.plan->efficiency);
    json->EndObject();
  }
  json->BeginObject("last_iteration");
  json->Field("peak_live_bytes", stats.last_iteration.live);
  json->Field("held_peak_bytes", stats.last_iteration.held);
  json->EndObject();
  json->BeginObject("native");
  json->Field("held_bytes", stats.native.held_bytes);
  json->Field("peak_live_bytes", stats.native.peak_live_bytes);
  json->Field("overflowed", stats.native.overflowed);
  json->EndObject();
  if (stats.watch.on) {
    json->BeginObject("watch");
    json->Field("tails", stats.watch.tails);
    json->Field("freed", stats.watch.freed);
    json->Field("unchecked", stats.watch.unchecked);
    json->Field("open", stats.watch.open);
    json->Field("findings", stats.watch.findings);
    json->EndObject();
  }
}

}  // namespace stalloc
