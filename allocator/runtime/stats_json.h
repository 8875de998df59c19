// The statistics of a session as JSON: what stalloc_stats_json returns and the summary file holds.
//
// The figures of the device with most requests stand at the top level, every device's in "devices". All peaks are of
// the whole run, whatever the program reset meanwhile. Bytes.
//
//   mode, degraded            "Alloc"; null, or why nothing is planned or traced
//   rank, local_rank, world_size, stalloc_version, torch_version, device_name
//   trace {...}               Trace only: mode, path, events, blocked, unpaired, write_error
//   requests                  = planned_hits + dynamic_hits + the sum of misses (Alloc)
//   heap_hits, upstream       who served the rest: pages (exact Trace), the allocator underneath
//   misses {reason: n}        every reason, also with 0
//   unknown_frees, iterations, gave_up
//   stream_events, stream_waits    by which the arena's bytes passed between streams
//   steady                    of requests over 512 B from the second iteration on: requests outside of fences, hits of
//                             these (from their slots), fenced (evaluations and checkpoints, which have no slots)
//   live_bytes, arena_live_bytes, heap_bytes, upstream_reserved_bytes    now
//   peak_live_bytes           of arena, heap and upstream together, every block rounded up to 512 B
//   arena_bytes               mapped at most
//   arena_lent_bytes          idle chunks that were given back (full device, emptied cache) and not mapped again
//   arena_times_lent          how often chunks were given back
//   arena_times_grown         requests that more was mapped for above all of the arena
//   arena_times_mapped_again  requests that chunks were mapped for which had been given back
//   arena_map_seconds         that both took for it
//   arena_times_moved         requests that idle chunks were moved for, which then cost no memory
//   arena_moved_bytes         of those chunks
//   arena_times_waited        of those requests, such that waited for the device
//   arena_wait_seconds        for which these waited
//   arena_move_seconds        that all of those requests took for moving, waits included
//   upstream_reserved_peak_bytes, held_peak_bytes    peaks; the second of the sum of all that is held on the device
//   efficiency                peak_live_bytes / held_peak_bytes
//   since_plan {...}          Auto only, once a plan was taken up: iterations begun until then; peak_live_bytes,
//                             held_peak_bytes and efficiency from then on
//   watch {...}               STALLOC_WATCH=1 only: tails and freed (ranges) looked at, unchecked, open, findings
#pragma once

#include <string>
#include <vector>

#include "allocator/runtime/device_runtime.h"

namespace stalloc {

struct SessionFigures {
  struct Device {
    DeviceIndex device = 0;
    RuntimeStats stats;
  };
  Config config;
  std::string degraded;
  Fingerprint fingerprint;
  Recorder::Counters recorder;
  std::vector<Device> devices;  // in the order in which they were added
};

[[nodiscard]] std::string StatsToJson(const SessionFigures& figures);

}  // namespace stalloc
