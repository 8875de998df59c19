#include "allocator/torch/graph_guard.h"

#include <optional>
#include <stdexcept>
#include <utility>

#include "allocator/graphs/graph_error.h"

namespace stalloc {
namespace {

// The pool that this thread opened last, and no capture took yet.
struct LastOpened {
  const GraphGuard* by = nullptr;
  GraphPool* pool = nullptr;
};
thread_local LastOpened t_last_opened;

template <typename Pointer>
GraphHandles::Handle HandleOf(Pointer pointer) noexcept {
  return reinterpret_cast<GraphHandles::Handle>(pointer);
}

cudaError_t ErrorOf(LaunchListener::Verdict verdict) noexcept {
  switch (verdict) {
    case LaunchListener::Verdict::kOutOfMemory:
      return cudaErrorMemoryAllocation;
    case LaunchListener::Verdict::kCarriedGone:
      return cudaErrorIllegalState;
    case LaunchListener::Verdict::kNotOrdered:
      return cudaErrorNotPermitted;
    case LaunchListener::Verdict::kLaunch:
      break;
  }
  return cudaSuccess;
}

void TellGone(const std::optional<GraphHandles::Capture>& gone) noexcept {
  if (gone.has_value()) gone->pool->GraphGone(gone->graph);
}

// What is launched with the handle would write over tensors.
[[noreturn]] void ThrowStuck() {
  throw std::runtime_error(
      "stalloc: other tensors lie in the pool of this CUDA graph and cannot leave it now: the device has no memory for "
      "them elsewhere, or a stream is captured");
}

}  // namespace

GraphGuard::GraphGuard(GraphPools& pools, const Functions& functions, IsCapturing is_capturing)
    : pools_(pools), functions_(functions), is_capturing_(std::move(is_capturing)) {}

// The default stream is never captured, and querying it fails while another one is.
bool GraphGuard::IsCaptured(cudaStream_t stream) const noexcept {
  return stream != nullptr && stream != cudaStreamLegacy && is_capturing_(stream);
}

// Pools ---------------------------------------------------------------------------------------------------------------

bool GraphGuard::Opens(std::uint32_t pool, DeviceIndex device) {
  GraphPool& opened = pools_.Get(pool, device);
  if (!opened.Opens()) return false;
  t_last_opened = {this, &opened};
  return true;
}

void GraphGuard::Closes(std::uint32_t pool) noexcept {
  GraphPool* const closed = pools_.Find(pool);
  if (closed == nullptr) return;
  if (t_last_opened.pool == closed) t_last_opened = {};
  closed->Closes();
}

void GraphGuard::Left(std::uint32_t pool) noexcept {
  if (GraphPool* const left = pools_.Find(pool); left != nullptr) left->Left();
}

// Captures ------------------------------------------------------------------------------------------------------------

cudaError_t GraphGuard::BeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) noexcept {
  const cudaError_t error = functions_.begin_capture(stream, mode);
  const LastOpened opened = std::exchange(t_last_opened, {});
  if (error == cudaSuccess && opened.by == this) {
    handles_.CaptureBegins(HandleOf(stream), {opened.pool, opened.pool->CaptureBegins()});
  }
  return error;
}

cudaError_t GraphGuard::EndCapture(cudaStream_t stream, cudaGraph_t* graph) noexcept {
  const std::optional<GraphHandles::Capture> capture = handles_.CaptureEnds(HandleOf(stream));
  const cudaError_t error = functions_.end_capture(stream, graph);
  if (error == cudaErrorStreamCaptureWrongThread && capture.has_value()) {  // it goes on
    handles_.CaptureBegins(HandleOf(stream), *capture);
    return error;
  }
  const bool made = error == cudaSuccess && graph != nullptr && *graph != nullptr;
  if (made) TellGone(handles_.SetGraph(HandleOf(*graph), capture));
  if (capture.has_value()) capture->pool->CaptureEnds(capture->graph, made);
  return error;
}

cudaError_t GraphGuard::InstantiateWith(Instantiate real, cudaGraphExec_t* executable, cudaGraph_t graph,
                                        unsigned long long flags) noexcept {
  const std::optional<GraphHandles::Capture> capture = handles_.OfGraph(HandleOf(graph));
  const bool of_device = capture.has_value() && (flags & cudaGraphInstantiateFlagDeviceLaunch) != 0;
  if (of_device && !capture->pool->SetUnfollowable("an executable of it can be launched from the device")) {
    return cudaErrorMemoryAllocation;
  }
  const cudaError_t error = real(executable, graph, flags);
  if (error == cudaSuccess) TellGone(handles_.SetExecutable(HandleOf(*executable), capture));
  return error;
}

// Launches ------------------------------------------------------------------------------------------------------------

cudaError_t GraphGuard::Launch(cudaGraphExec_t executable, cudaStream_t stream) noexcept {
  const std::optional<GraphHandles::Capture> capture = handles_.OfExecutable(HandleOf(executable));
  if (!capture.has_value()) return functions_.launch(executable, stream);
  cudaError_t error = cudaSuccess;
  const LaunchListener::Answer answer = capture->pool->LaunchWith(
      capture->graph, HandleOf(stream), IsCaptured(stream), [&] { error = functions_.launch(executable, stream); });
  if (answer.verdict == LaunchListener::Verdict::kLaunch) return error;
  SetGraphError(answer, capture->pool->number(), capture->graph);
  return ErrorOf(answer.verdict);
}

// Ends ----------------------------------------------------------------------------------------------------------------

// Forgotten first: once it is destroyed, another thread may get the handle again.
cudaError_t GraphGuard::DestroyExecutable(cudaGraphExec_t executable) noexcept {
  const std::optional<GraphHandles::Capture> capture = handles_.OfExecutable(HandleOf(executable));
  const std::optional<GraphHandles::Capture> gone = handles_.SetExecutable(HandleOf(executable), std::nullopt);
  const cudaError_t error = functions_.destroy_executable(executable);
  if (error != cudaSuccess && capture.has_value()) {
    capture->pool->SetUnfollowable("an executable of it could not be destroyed");
  }
  TellGone(gone);
  return error;
}

cudaError_t GraphGuard::DestroyGraph(cudaGraph_t graph) noexcept {
  const std::optional<GraphHandles::Capture> gone = handles_.SetGraph(HandleOf(graph), std::nullopt);
  const cudaError_t error = functions_.destroy_graph(graph);
  TellGone(gone);
  return error;
}

void* GraphGuard::RawGraph(void* torch_graph) {
  void* const graph = functions_.raw_graph(torch_graph);
  if (const auto capture = handles_.OfGraph(HandleOf(graph)); capture.has_value()) {
    if (!capture->pool->SetUnfollowable("the program has the handle of a graph of it")) ThrowStuck();
  }
  return graph;
}

void* GraphGuard::RawExecutable(void* torch_graph) {
  void* const executable = functions_.raw_executable(torch_graph);
  if (const auto capture = handles_.OfExecutable(HandleOf(executable)); capture.has_value()) {
    if (!capture->pool->SetUnfollowable("the program has the handle of an executable of it")) ThrowStuck();
  }
  return executable;
}

}  // namespace stalloc
