// Why a request was not served from a slot of the plan.
#pragma once

#include <cstdint>

namespace stalloc {

enum class MissReason : std::uint8_t {
  kNone,         // served
  kUnplanned,    // matched an entry that the plan leaves to upstream (its size varies, it is not always there)
  kUnknownSize,  // no entry of this script has this size
  kUnmatched,    // the size exists, but not here
  kOccupied,     // matched, but a live block holds bytes of the slot
  kStream,       // matched, but its stream cannot be ordered behind those that used the bytes
  kFenced,       // inside a fence (evaluation, checkpoint)
  kCapturing,    // a graph capture or MemPool owns the stream's requests
  kParallel,     // from a parallel region, whose threads come in any order
  kInactive,     // no plan, plan given up, or forked child
  kUnbacked,     // matched, but the slot's memory went back to the device and cannot be had again now
  kCount,
};
[[nodiscard]] const char* MissReasonName(MissReason reason) noexcept;

}  // namespace stalloc
