// SlotStreams: what the plan says about each slot's streams: which slots no other stream's slot touches, and whose
// bytes it hands to another stream. Cold; pure.
#pragma once

#include <cstdint>
#include <vector>

#include "proto/model/plan.h"

namespace stalloc {

// The stream (ordinal) whose slots are served most bytes; 0 if there are none.
[[nodiscard]] std::uint32_t MainStream(const DevicePlan& plan);

// Of each slot: LiveRecord::kPrivate if every slot that shares a byte with it is used by entries of the main stream
// only (one stream alone, so that whoever places a block beside the slots has to ask but one), else kHandedOver if one
// of the plan's stream edges begins there, else 0.
[[nodiscard]] std::vector<std::uint16_t> FlagsOfSlots(const DevicePlan& plan);

// Greatest stream ordinal of an entry, plus one.
[[nodiscard]] std::size_t CountStreams(const DevicePlan& plan);

}  // namespace stalloc
