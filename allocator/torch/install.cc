// The exports of libstalloc_torch.so that stalloc.h does not have. Errors go to stalloc_last_error; nothing throws
// across.
#include "allocator/capi/global_session.h"
#include "allocator/torch/cpu_allocator.h"
#include "allocator/torch/cuda_install.h"
#include "allocator/torch/stalloc_torch.h"
#include "allocator/torch/torch_version.h"
#include "allocator/torch/use_recorder.h"

namespace {

using Install = stalloc::Status (*)(const char* running_torch);

int Report(const stalloc::Status& status) {
  if (status.ok()) return 0;
  stalloc::SetLastError(status.error());
  return 1;
}

int CheckAndInstall(const char* running_torch, Install install, c10::DeviceType device) noexcept {
  const std::string_view running = running_torch == nullptr ? "" : running_torch;
  stalloc::Status matches = stalloc::CheckTorchVersion(stalloc::BuiltForTorch(), running);
  if (!matches.ok()) return Report(matches);
  try {
    const stalloc::Status installed = install(running_torch);
    stalloc::Session* const session = stalloc::GlobalSession();
    if (installed.ok() && session != nullptr && session->config().trace_uses &&
        session->config().mode == stalloc::Mode::kTrace) {
      stalloc::RecordUses(session, device);
    }
    return Report(installed);
  } catch (const std::exception& error) {
    return Report(stalloc::Error{error.what()});
  }
}

}  // namespace

extern "C" {

const char* stalloc_torch_built_for(void) { return stalloc::BuiltForTorch(); }
int stalloc_torch_has_cuda(void) { return stalloc::HasCudaAdapter() ? 1 : 0; }
int stalloc_torch_install_cuda(const char* running_torch) {
  return CheckAndInstall(running_torch, stalloc::InstallCuda, c10::DeviceType::CUDA);
}
int stalloc_torch_install_cpu(const char* running_torch) {
  return CheckAndInstall(running_torch, stalloc::InstallCpu, c10::DeviceType::CPU);
}

}  // extern "C"
