// A device that is not there: requests of torch's fake tensors are counted and traced as in fast mode, and no
// memory stands for it. Python reports births and deaths of storages (patches/stalloc/fake); marks, names, stacks,
// windows and the trace file are those of any trace. The fingerprint's trace mode is "fake", its GPU without a name.
//
// One device a process, never removed. Thread-safe but for the installation. Sizes are bytes.
#pragma once

#include "proto/model/result.h"
#include "proto/model/units.h"

namespace stalloc {

// Opens the session and adds `device`, kCpuDevice or the index of a GPU. For a GPU, torch also learns that it has
// one (fake_cuda.h). Errors: the mode is not Trace, there is such a device already, the session's own.
// `running_torch`: torch.__version__.
[[nodiscard]] Status InstallFake(const char* running_torch, DeviceIndex device);

// An address that nothing else has and no memory backs; null for 0 bytes. REQUIRES: installed.
[[nodiscard]] void* FakeAllocate(Bytes requested, StreamHandle stream);
// Another stream uses the block, too. REQUIRES: installed, and allocated here.
void FakeRecordStream(void* block, StreamHandle stream) noexcept;
// Null is fine. REQUIRES: installed, and allocated here.
void FakeFree(void* block) noexcept;

}  // namespace stalloc
