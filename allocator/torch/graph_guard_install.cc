// GraphGuard, second part: its place in torch's import tables.
#include <array>
#include <string>
#include <utility>

#include "allocator/base/log.h"
#include "allocator/torch/graph_guard.h"
#include "allocator/torch/import_replacements.h"
#include "allocator/torch/uncounted_bytes.h"

namespace stalloc {
namespace {

// Set before any of the functions below can be called.
GraphGuard* g_guard = nullptr;
UncountedBytes* g_counting_graphs = nullptr;

// What CUDA's headers declare, under names of ours.
cudaError_t GuardedBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  return g_guard->BeginCapture(stream, mode);
}
cudaError_t GuardedEndCapture(cudaStream_t stream, cudaGraph_t* graph) { return g_guard->EndCapture(stream, graph); }
cudaError_t CountedInstantiate(GraphGuard::Instantiate real, cudaGraphExec_t* executable, cudaGraph_t graph,
                               unsigned long long flags) {
  return g_counting_graphs->During(UncountedBytes::Cause::kGraphs,
                                   [&] { return g_guard->InstantiateWith(real, executable, graph, flags); });
}
cudaError_t GuardedInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph, unsigned long long flags) {
  return CountedInstantiate(g_guard->functions().instantiate, executable, graph, flags);
}
cudaError_t GuardedInstantiateWithFlags(cudaGraphExec_t* executable, cudaGraph_t graph, unsigned long long flags) {
  return CountedInstantiate(g_guard->functions().instantiate_with_flags, executable, graph, flags);
}
cudaError_t GuardedLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
  return g_guard->Launch(executable, stream);
}
cudaError_t GuardedDestroyExecutable(cudaGraphExec_t executable) { return g_guard->DestroyExecutable(executable); }
cudaError_t GuardedDestroyGraph(cudaGraph_t graph) { return g_guard->DestroyGraph(graph); }
void* GuardedRawGraph(void* torch_graph) { return g_guard->RawGraph(torch_graph); }
void* GuardedRawExecutable(void* torch_graph) { return g_guard->RawExecutable(torch_graph); }

// Ways to launch, make or change graphs that no supported torch takes. One that does is not followed.
constexpr std::array kUnknownWays = {"cudaGraphLaunch_ptsz",
                                     "cudaStreamBeginCapture_ptsz",
                                     "cudaStreamEndCapture_ptsz",
                                     "cudaGraphInstantiateWithParams",
                                     "cudaGraphInstantiateWithParams_ptsz",
                                     "cudaGraphClone",
                                     "cudaGraphAddChildGraphNode",
                                     "cudaGraphExecUpdate",
                                     "cudaGraphExecChildGraphNodeSetParams"};

// What libtorch_cuda calls of CUDA.
Status WantCuda(ImportReplacements& imports, GraphGuard::Functions& real) {
  if (Status read = imports.Read("libtorch_cuda.so"); !read.ok()) return read;
  for (const char* const symbol : kUnknownWays) {
    if (!imports.last().Find(symbol).empty()) return Error{imports.last().path() + ": imports " + symbol};
  }
  imports.WantIfImported("cudaGraphInstantiate", real.instantiate, &GuardedInstantiate);
  imports.WantIfImported("cudaGraphInstantiateWithFlags", real.instantiate_with_flags, &GuardedInstantiateWithFlags);
  if (real.instantiate == nullptr && real.instantiate_with_flags == nullptr) {
    return Error{imports.last().path() + ": imports neither cudaGraphInstantiate nor cudaGraphInstantiateWithFlags"};
  }
  Status wanted = imports.Want("cudaStreamBeginCapture", real.begin_capture, &GuardedBeginCapture);
  if (wanted.ok()) wanted = imports.Want("cudaStreamEndCapture", real.end_capture, &GuardedEndCapture);
  if (wanted.ok()) wanted = imports.Want("cudaGraphLaunch", real.launch, &GuardedLaunch);
  if (wanted.ok()) wanted = imports.Want("cudaGraphExecDestroy", real.destroy_executable, &GuardedDestroyExecutable);
  if (wanted.ok()) wanted = imports.Want("cudaGraphDestroy", real.destroy_graph, &GuardedDestroyGraph);
  return wanted;
}

// What libtorch_python calls of libtorch_cuda, where torch has it. In a program without Python nobody does.
void WantPython(ImportReplacements& imports, GraphGuard::Functions& real) {
  if (!imports.Read("libtorch_python.so").ok()) return;
  imports.WantIfImported("_ZN2at4cuda9CUDAGraph14raw_cuda_graphEv", real.raw_graph, &GuardedRawGraph);
  imports.WantIfImported("_ZN2at4cuda9CUDAGraph19raw_cuda_graph_execEv", real.raw_executable, &GuardedRawExecutable);
}

}  // namespace

GraphGuard* GraphGuard::Install(GraphPools& pools, UncountedBytes& uncounted, IsCapturing is_capturing) {
  ImportReplacements imports;
  Functions real;
  Status status = WantCuda(imports, real);
  if (status.ok()) {
    WantPython(imports, real);
    g_counting_graphs = &uncounted;
    g_guard = new GraphGuard(pools, real, std::move(is_capturing));
    status = imports.Replace();
  }
  if (status.ok()) return g_guard;
  Log(LogSeverity::kDebug, "launches of CUDA graphs are not followed: %s", status.error().c_str());
  return nullptr;  // the guard, if there is one, stays: a call may be in it
}

}  // namespace stalloc
