// Sharing a tensor with another process (CUDA IPC): what is ours cannot be shared, and the error says what can.
//
// The receiving process would have to map our chunks, which torch's own reader of handles does not know how to do, and
// a chunk that another process maps could not go back to the device. What the native allocator gave out is shared as
// ever.
#pragma once

#include <c10/core/Device.h>

#include "allocator/runtime/device_runtime.h"

namespace stalloc {

// Throws c10::Error if arena or heap of `runtime` holds the address: which of them, and the ways out. Thread-safe.
void CheckShareable(const DeviceRuntime& runtime, c10::DeviceIndex device, const void* pointer);

}  // namespace stalloc
