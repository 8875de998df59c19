#include "allocator/torch/cuda_install.h"

#include <c10/cuda/CUDACachingAllocator.h>

#include "allocator/base/log.h"
#include "allocator/capi/global_session.h"
#include "allocator/torch/cuda_allocator.h"
#include "allocator/torch/graph_figures.h"

namespace stalloc {
namespace {

StallocCudaAllocator* g_installed_cuda = nullptr;

}  // namespace

bool HasCudaAdapter() noexcept { return true; }

Status InstallCuda(const char* running_torch) {
  using c10::cuda::CUDACachingAllocator::allocator;
  if (g_installed_cuda != nullptr) return Error{"stalloc's CUDA allocator is installed already"};
  auto* native = allocator.load();
  // torch's own words for it: changeCurrentAllocator checks the same.
  if (native == nullptr || native->initialized()) {
    return Error{
        "Can't swap an already initialized allocator: CUDA is in use already. Install stalloc first thing in the "
        "program, before the first CUDA tensor and before imports that initialise CUDA (megatron.training does)"};
  }
  Fingerprint known;
  known.torch_version = running_torch;
  Result<Session*> session = OpenGlobalSession(known);
  if (!session.ok()) return Error{session.error()};
  if (session.value()->config().mode == Mode::kTorch) return Ok{};
  g_installed_cuda = new StallocCudaAllocator(native, session.value(), running_torch);
  g_installed_cuda->FollowGraphs();
  g_installed_cuda->CountCommunicators();
  allocator.store(g_installed_cuda);
  // torch.accelerator.* and getDeviceAllocator query the other registry.
  c10::SetAllocator(c10::kCUDA, g_installed_cuda, 1);
  Log(LogSeverity::kDebug, "installed for CUDA, mode %s, torch %s", ModeName(session.value()->config().mode),
      running_torch);
  return Ok{};
}

std::string CudaGraphFigures() {
  if (g_installed_cuda == nullptr) return "{}";
  return GraphFigures(g_installed_cuda->graph_pools(), g_installed_cuda->follows_graphs());
}

std::string CudaUncountedFigures() { return g_installed_cuda == nullptr ? "{}" : g_installed_cuda->UncountedFigures(); }

}  // namespace stalloc
