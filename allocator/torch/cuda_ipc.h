// Sharing a block of the arena with another process (CUDA IPC), in the format that PyTorch has for its expandable
// segments: a block lies in a run of chunks of one size, as theirs do. So torch maps it in any process, with stalloc
// or without. What the native allocator gave out it shares itself.
//
//   byte  0  version, 2 or 3     byte  2  the sender's process id, 4 bytes      byte 18  number of handles, 8 bytes
//         1  type, 'e'                 6  0, 4 bytes                                 26  in version 3: 1 for
//                                     10  bytes of a handle, 8 bytes                     descriptors, and 0, 4 bytes
//                                     each
//   then  a file descriptor of the sender's for each handle, 4 bytes
//
// As torch writes and reads it (version/segment_format.h says which torch has which version).
// The reader fetches the descriptors (pidfd_getfd), imports each, maps them one after the other, for reading and
// writing, and keeps what it mapped by this text as long as a tensor needs it: see arena.h, Note [Descriptors]. Until
// then torch keeps the sender's block alive (CudaIPCSentData), and so its chunks are neither moved nor given back.
#pragma once

#include <c10/core/Device.h>
#include <c10/cuda/CUDACachingAllocator.h>

#include <cstdint>
#include <string>

#include "allocator/runtime/device_runtime.h"
#include "allocator/torch/version/segment_format.h"

namespace stalloc {

// REQUIRES: descriptors of process `process`, a known format. Thread-safe.
[[nodiscard]] std::string SharedSegment(version::SegmentFormat format, std::int32_t process,
                                        const Arena::Exported& chunks);

// For a block that an arena of `runtime` holds. Throws c10::Error where it cannot be shared: why, and the ways
// out. Thread-safe.
[[nodiscard]] c10::cuda::CUDACachingAllocator::ShareableHandle ShareBlock(const DeviceRuntime& runtime,
                                                                          c10::DeviceIndex device, const void* pointer);

}  // namespace stalloc
