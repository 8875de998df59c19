// Changes to a recording: what it shows becomes harder, or shows something else.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "bench/replay/recording.h"

namespace stalloc::bench {

// Drops what all iterations but the first end with alike, byte for byte (the optimizer's step), from every iteration,
// so that what varies decides the peak. Blocks that are never freed (optimizer state) stay. FailedPrecondition where
// iterations do not end alike.
[[nodiscard]] absl::Status CutCommonTail(Recording* recording);

// For recordings without marks. An iteration that has a tenth more requests than the shortest was followed by an
// evaluation: from where its first requests come again on, it is put inside a fence, as a training loop's mark would.
void FenceEvaluations(Recording* recording);

// Every request that many times as large: a toy model recorded on a CPU then is as large as a real one.
void Scale(Recording* recording, std::uint32_t factor);

// Drops `share` of the piece's requests that are freed in it, and inserts as many: each like one of them in size,
// stream and number of steps that it lives, somewhere else. The same for the same seed.
void InsertAndDrop(Piece* piece, double share, std::uint64_t seed);

// Frees `share` of the piece's blocks later, by up to `most_requests` requests, as threads of a communication library
// do, which hold on to a block until they see that the device is done with it. The same for the same seed.
void DelayFrees(Piece* piece, double share, std::uint32_t most_requests, std::uint64_t seed);

}  // namespace stalloc::bench
