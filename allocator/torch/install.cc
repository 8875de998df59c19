// The exports of libstalloc_torch.so that stalloc.h does not have. Errors go to stalloc_last_error; nothing throws
// across.
#include <cstring>

#include "allocator/capi/global_session.h"
#include "allocator/graphs/graph_error.h"
#include "allocator/torch/cpu_allocator.h"
#include "allocator/torch/cuda_install.h"
#include "allocator/torch/fake_device.h"
#include "allocator/torch/stalloc_torch.h"
#include "allocator/torch/torch_version.h"
#include "allocator/torch/use_recorder.h"

namespace {

int Report(const stalloc::Status& status) {
  if (status.ok()) return 0;
  stalloc::SetLastError(status.error());
  return 1;
}

// `install` takes running_torch and returns a Status.
template <typename Install>
int CheckAndInstall(const char* running_torch, const Install& install) noexcept {
  const std::string_view running = running_torch == nullptr ? "" : running_torch;
  stalloc::Status matches = stalloc::CheckTorchVersion(stalloc::BuiltForTorch(), running);
  if (!matches.ok()) return Report(matches);
  try {
    return Report(install(running_torch));
  } catch (const std::exception& error) {
    return Report(stalloc::Error{error.what()});
  }
}

// `figures` as JSON, with a final 0, where the buffer is large enough. Returns its length; 0: an error.
template <typename Figures>
std::size_t WriteJson(const Figures& figures, char* buffer, std::size_t capacity) noexcept {
  try {
    const std::string json = figures();
    if (buffer != nullptr && capacity > json.size()) std::memcpy(buffer, json.c_str(), json.size() + 1);
    return json.size();
  } catch (const std::exception& error) {
    stalloc::SetLastError(error.what());
    return 0;
  }
}

void RecordUsesIfAsked(c10::DeviceType device) {
  stalloc::Session* const session = stalloc::GlobalSession();
  if (session == nullptr || session->config().mode != stalloc::Mode::kTrace) return;
  if (session->config().trace_uses) stalloc::RecordUses(session, device);
}

stalloc::Status InstallCudaAndUses(const char* running_torch) {
  stalloc::Status installed = stalloc::InstallCuda(running_torch);
  if (installed.ok()) RecordUsesIfAsked(c10::DeviceType::CUDA);
  return installed;
}

stalloc::Status InstallCpuAndUses(const char* running_torch) {
  stalloc::Status installed = stalloc::InstallCpu(running_torch);
  if (installed.ok()) RecordUsesIfAsked(c10::DeviceType::CPU);
  return installed;
}

}  // namespace

extern "C" {

const char* stalloc_torch_built_for(void) { return stalloc::BuiltForTorch(); }
const char* stalloc_torch_interface(void) { return stalloc::InterfaceClaim(); }
int stalloc_torch_has_cuda(void) { return stalloc::HasCudaAdapter() ? 1 : 0; }
int stalloc_torch_install_cuda(const char* running_torch) { return CheckAndInstall(running_torch, InstallCudaAndUses); }
int stalloc_torch_install_cpu(const char* running_torch) { return CheckAndInstall(running_torch, InstallCpuAndUses); }
const char* stalloc_graph_error(void) { return stalloc::TakeGraphError(); }
size_t stalloc_graphs_json(char* buffer, size_t capacity) {
  return WriteJson(stalloc::CudaGraphFigures, buffer, capacity);
}
size_t stalloc_uncounted_json(char* buffer, size_t capacity) {
  return WriteJson(stalloc::CudaUncountedFigures, buffer, capacity);
}
int stalloc_torch_install_fake(const char* running_torch, int device) {
  return CheckAndInstall(running_torch,
                         [device](const char* running) { return stalloc::InstallFake(running, device); });
}
void* stalloc_torch_fake_allocate(size_t bytes, uint64_t stream) { return stalloc::FakeAllocate(bytes, stream); }
void stalloc_torch_fake_record_stream(void* block, uint64_t stream) { stalloc::FakeRecordStream(block, stream); }
void stalloc_torch_fake_free(void* block) { stalloc::FakeFree(block); }

}  // extern "C"
