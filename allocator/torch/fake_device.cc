#include "allocator/torch/fake_device.h"

#include <atomic>
#include <cstdint>

#include "allocator/capi/global_session.h"
#include "allocator/torch/fake_cuda.h"
#include "allocator/torch/recomputation.h"

namespace stalloc {
namespace {

// Addresses go up and are never used again: an address space of 2^47 bytes outlasts any trace of units of 512.
class AddressesAlone final : public Upstream {
 public:
  void* Allocate(Bytes requested, StreamHandle) override {
    if (requested == 0) return nullptr;
    return reinterpret_cast<void*>(next_.fetch_add(kUnit, std::memory_order_relaxed));
  }
  void Free(void*) noexcept override {}
  void RecordStream(void*, StreamHandle) override {}
  [[nodiscard]] Held HeldBytes() const override { return {}; }

 private:
  static constexpr std::uintptr_t kUnit = 512;
  std::atomic<std::uintptr_t> next_{kUnit};
};

DeviceRuntime* g_device = nullptr;

Fingerprint Known(const char* running_torch, DeviceIndex device) {
  Fingerprint fingerprint;
  fingerprint.torch_version = running_torch;
  fingerprint.trace_mode = kFakeTrace;
  if (device == kCpuDevice) fingerprint.device_name = "cpu";
  return fingerprint;
}

}  // namespace

Status InstallFake(const char* running_torch, DeviceIndex device) {
  if (g_device != nullptr) return Error{"a device of fake tensors is installed already"};
  const Fingerprint known = Known(running_torch, device);
  Result<Session*> opened = OpenGlobalSession(known);
  if (!opened.ok()) return Error{opened.error()};
  Session& session = *opened.value();
  if (session.config().mode != Mode::kTrace) return Error{"fake tensors are for STALLOC_MODE=Trace alone"};
  if (!session.degraded().empty()) return Error{session.degraded()};
  if (device != kCpuDevice) {
    if (Status faked = FakeCuda(); !faked.ok()) return faked;
  }
  g_device = session.AddDevice(device, new AddressesAlone, nullptr, nullptr, known, nullptr, &PassOfThread);
  return g_device != nullptr ? Status{Ok{}} : Status{Error{session.failure()}};
}

void* FakeAllocate(Bytes requested, StreamHandle stream) {
  return g_device->Allocate(requested, stream, Origin::kProgram);
}

void FakeRecordStream(void* block, StreamHandle stream) noexcept { g_device->RecordStream(block, stream); }

void FakeFree(void* block) noexcept { g_device->Free(block); }

}  // namespace stalloc
