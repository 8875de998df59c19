#include <c10/core/CPUAllocator.h>
#include <unistd.h>

#include "allocator/base/log.h"
#include "allocator/capi/global_session.h"
#include "allocator/driver/host_copies.h"
#include "allocator/driver/host_driver.h"
#include "allocator/driver/host_watch_memory.h"
#include "allocator/torch/cpu_allocator.h"
#include "allocator/torch/cpu_upstream.h"
#include "allocator/torch/recomputation.h"

namespace stalloc {
namespace {

StallocCpuAllocator* g_installed_cpu = nullptr;

Bytes PhysicalMemory() {
  return static_cast<Bytes>(sysconf(_SC_PHYS_PAGES)) * static_cast<Bytes>(sysconf(_SC_PAGESIZE));
}

Fingerprint CpuFingerprint(const char* running_torch) {
  Fingerprint fingerprint;
  fingerprint.torch_version = running_torch;
  fingerprint.device_name = "cpu";
  fingerprint.device_bytes = PhysicalMemory();
  return fingerprint;
}

// The parts live as long as the process, like the blocks.
Result<StallocCpuAllocator*> MakeAllocator(Session& session, const char* running_torch) {
  c10::Allocator* previous = c10::GetCPUAllocator();
  if (previous == nullptr || previous->raw_deleter() == nullptr) {
    return Error{"the CPU allocator that is installed cannot be wrapped: its blocks need a context of their own"};
  }
  const Bytes limit = session.config().memory_limit;
  VmmDriver* driver = HostDriver::Create({.capacity = limit}).release();
  if (driver == nullptr) Log(LogSeverity::kWarning, "cpu: no memfd, so neither arena nor exact trace: errno %d", errno);
  auto* upstream = new CpuUpstream(previous, driver, limit);
  WatchMemory* watch = session.config().watch ? new HostWatchMemory : nullptr;
  DeviceRuntime* runtime = session.AddDevice(kCpuDevice, upstream, driver, nullptr, CpuFingerprint(running_torch),
                                             watch, &PassOfThread, new HostCopies);
  if (runtime == nullptr) return Error{session.failure()};
  return new StallocCpuAllocator(runtime);
}

}  // namespace

Status InstallCpu(const char* running_torch) {
  if (g_installed_cpu != nullptr) return Error{"stalloc's CPU allocator is installed already"};
  Result<Session*> session = OpenGlobalSession(CpuFingerprint(running_torch));
  if (!session.ok()) return Error{session.error()};
  if (session.value()->config().mode == Mode::kTorch) return Ok{};
  Result<StallocCpuAllocator*> made = MakeAllocator(*session.value(), running_torch);
  if (!made.ok()) return Error{made.error()};
  g_installed_cpu = made.value();
  c10::SetCPUAllocator(g_installed_cpu, 1);
  Log(LogSeverity::kDebug, "installed for the CPU, mode %s, torch %s", ModeName(session.value()->config().mode),
      running_torch);
  return Ok{};
}

}  // namespace stalloc
