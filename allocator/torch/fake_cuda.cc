#include "allocator/torch/fake_cuda.h"

#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <dlfcn.h>

#include <atomic>
#include <new>

namespace stalloc {
namespace {

// The present device's number, which programs set; streams are all of number 0.
std::atomic<c10::DeviceIndex> g_present{0};

// What is not answered here raises torch's own error on a CUDA library that is missing.
struct FakeDevices final : at::CUDAHooksInterface {
  void init() const override {}
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasCUDA() const override { return true; }
  bool hasPrimaryContext(at::DeviceIndex) const override { return true; }
  at::DeviceIndex deviceCount() const override { return 1; }
  at::DeviceIndex current_device() const override { return g_present.load(); }
  at::DeviceIndex getCurrentDevice() const override { return g_present.load(); }
  void setCurrentDevice(at::DeviceIndex device) const override { g_present.store(device); }
  at::DeviceIndex exchangeDevice(at::DeviceIndex device) const override { return g_present.exchange(device); }
  at::DeviceIndex maybeExchangeDevice(at::DeviceIndex device) const override { return g_present.exchange(device); }
  int getNumGPUs() const override { return 1; }
  void deviceSynchronize(at::DeviceIndex) const override {}
};
// Hooks are interfaces without state, in torch as here: the one may stand in the other's place.
static_assert(sizeof(FakeDevices) == sizeof(at::CUDAHooksInterface));

const c10::Device kOfStreams(c10::DeviceType::CUDA, 0);

// One stream, of a device that the engine may count with: torch's own guard for no device has number -1. Events are
// recorded where gradients meet, and there is nothing to wait for.
struct NothingRuns final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return c10::DeviceType::CUDA; }
  c10::DeviceIndex deviceCount() const noexcept override { return 1; }
  c10::Device exchangeDevice(c10::Device device) const override {
    return {c10::DeviceType::CUDA, g_present.exchange(device.index())};
  }
  c10::Device getDevice() const override { return {c10::DeviceType::CUDA, g_present.load()}; }
  void setDevice(c10::Device device) const override { g_present.store(device.index()); }
  void uncheckedSetDevice(c10::Device device) const noexcept override { g_present.store(device.index()); }
  c10::Stream getStream(c10::Device) const noexcept override { return c10::Stream(c10::Stream::DEFAULT, kOfStreams); }
  c10::Stream getDefaultStream(c10::Device device) const override { return getStream(device); }
  c10::Stream getNewStream(c10::Device device, int) const override { return getStream(device); }
  c10::Stream exchangeStream(c10::Stream) const noexcept override { return getStream(kOfStreams); }
  bool queryStream(const c10::Stream&) const override { return true; }
  void synchronizeStream(const c10::Stream&) const override {}
  void record(void**, const c10::Stream&, c10::DeviceIndex, c10::EventFlag) const override {}
  void block(void*, const c10::Stream&) const override {}
  bool queryEvent(void*) const override { return true; }
};

// Found by name: libtorch_cpu is in the process, and nothing else of this library needs it.
const at::CUDAHooksInterface* Hooks() {
  void* const torch = dlopen("libtorch_cpu.so", RTLD_LAZY | RTLD_NOLOAD);
  if (torch == nullptr) return nullptr;
  using Getter = const at::CUDAHooksInterface& (*)();
  const auto getter = reinterpret_cast<Getter>(dlsym(torch, "_ZN2at6detail12getCUDAHooksEv"));
  return getter == nullptr ? nullptr : &getter();
}

}  // namespace

// torch queries its registry for the hooks once, when it is imported: what it has then is all that can be replaced.
Status FakeCuda() {
  const at::CUDAHooksInterface* const hooks = Hooks();
  if (hooks == nullptr) return Error{"this torch does not give its CUDA hooks: libtorch_cpu.so has no getCUDAHooks"};
  new (const_cast<at::CUDAHooksInterface*>(hooks)) FakeDevices;
  const c10::impl::DeviceGuardImplRegistrar registered(c10::DeviceType::CUDA, new NothingRuns);
  return Ok{};
}

}  // namespace stalloc
