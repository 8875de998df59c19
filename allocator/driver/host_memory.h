// Large anonymous memory of the host, with its pages in place. Bytes. Thread-safe, noexcept.
#pragma once

#include "proto/model/units.h"

namespace stalloc {

// What can be taken without swapping or being killed for it: what the system has available, and what the process's
// control group leaves. A guess, since others take memory at the same time.
[[nodiscard]] Bytes AvailableHostBytes() noexcept;

// Null, and errno is ENOMEM, where less than that is available. Large pages where the system has them. Forked children
// do not have it: a device that copies into pages which a fork has made copy-on-write would write into the child's.
[[nodiscard]] void* MapHostMemory(Bytes bytes) noexcept;
void UnmapHostMemory(void* memory, Bytes bytes) noexcept;

}  // namespace stalloc
