// A trace as text that other programs write: one event a line, words separated by one blank, times in nanoseconds from
// whatever origin, in the order in which the events happened.
//
//   stalloc-events 1                            the first line
//   = torch_version 2.11.0                      of the fingerprint: torch_version, device_name, device_bytes,
//                                               driver_version, world_size, rank, local_rank, trace_mode
//   a ID BYTES DEVICE STREAM TIME [CALL]        allocation; ID: any number that no live block has; device -1: the CPU
//   f ID TIME                                   its free
//   r ID STREAM TIME                            another stream uses the block, too
//   h DEVICE BYTES TIME                         what the allocator below holds
//   m KIND EDGE PASS CHUNK INDEX TIME [NAME]    a mark: init, iteration, microbatch, optimizer, layer, fence; begin,
//                                               end; F, B, W, FB, O or -
//   t TEXT                                      a text: they count from 0
//   c PARENT LINE FILE FUNCTION                 a call of a stack, by the numbers of its texts: calls count from 1;
//                                               PARENT: the call outside of it, 0: none
//   n ID OFFSET ROLE TEXT                       a tensor in a live block, by the number of its name: parameter,
//                                               gradient, optimizer_state, buffer, input or -
//   p ID POOL ADDRESS                           a live block is of a captured graph's pool: they count from 1; any
//                                               number is an address
//
// Streams are any numbers; with a device each is one stream.
#pragma once

#include <istream>

#include "absl/status/statusor.h"
#include "proto/model/trace.h"

namespace stalloc::planner {

// InvalidArgument names the line, what was expected and what was found. The trace is complete.
[[nodiscard]] absl::StatusOr<Trace> ReadEventText(std::istream& in);

}  // namespace stalloc::planner
