// CpuUpstream: torch's own CPU allocator as the upstream of a DeviceRuntime.
//
// Adds what a general allocator does not report: the bytes that are live in it (its held bytes; it caches nothing that
// we could see), and a cap: with `limit_bytes`, arena and upstream together may not hold more. Sizes in bytes, as
// requested. Thread-safe, also across fork(): the table's locks are taken over a fork, so a child of a busy process can
// go on.
#pragma once

#include <c10/core/Allocator.h>

#include <array>
#include <atomic>

#include "allocator/base/open_table.h"
#include "allocator/base/spin_mutex.h"
#include "allocator/base/thread_annotations.h"
#include "allocator/driver/vmm_driver.h"
#include "allocator/runtime/device_runtime.h"

namespace stalloc {

class CpuUpstream final : public Upstream {
 public:
  // `previous`: the allocator that was installed before; REQUIRES: it has a raw_deleter. `driver` (not owned) reports
  // what the arena holds, and is queried only under a limit. Never destroyed: fork handlers know every instance.
  CpuUpstream(c10::Allocator* previous, VmmDriver* driver, Bytes limit_bytes);

  // Throws c10::Error (torch: RuntimeError) when the limit or the system has no space, in the default allocator's
  // words.
  void* Allocate(Bytes requested, StreamHandle stream) override;
  void Free(void* pointer) noexcept override;
  void RecordStream(void*, StreamHandle) override {}
  [[nodiscard]] Held HeldBytes() const override;
  void BeginIteration() noexcept override;
  [[nodiscard]] bool Caches() const noexcept override { return false; }

  void LockForFork() noexcept STALLOC_NO_THREAD_SAFETY_ANALYSIS;
  void UnlockAfterFork() noexcept STALLOC_NO_THREAD_SAFETY_ANALYSIS;

 private:
  struct alignas(64) Shard {
    SpinMutex mutex;
    OpenTable<Bytes> bytes{1024};
  };
  static constexpr std::size_t kShards = 16;

  Shard& ShardOf(const void* pointer) noexcept;
  void CheckLimit(Bytes requested) const;

  c10::Allocator* const previous_;
  VmmDriver* const driver_;
  const Bytes limit_bytes_;
  std::atomic<Bytes> held_{0};
  std::atomic<Bytes> peak_{0};          // of the iteration that runs
  std::atomic<Bytes> earlier_peak_{0};  // of those before it
  std::array<Shard, kShards> shards_;
};

}  // namespace stalloc
