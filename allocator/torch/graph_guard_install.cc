// GraphGuard, second part: its place in torch's import tables.
#include <array>
#include <string>
#include <utility>
#include <vector>

#include "allocator/base/import_table.h"
#include "allocator/base/log.h"
#include "allocator/torch/graph_guard.h"

namespace stalloc {
namespace {

GraphGuard* g_guard = nullptr;  // set before any of the functions below can be called

// What CUDA's headers declare, under names of ours.
cudaError_t GuardedBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  return g_guard->BeginCapture(stream, mode);
}
cudaError_t GuardedEndCapture(cudaStream_t stream, cudaGraph_t* graph) { return g_guard->EndCapture(stream, graph); }
cudaError_t GuardedInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph, unsigned long long flags) {
  return g_guard->InstantiateWith(g_guard->functions().instantiate, executable, graph, flags);
}
cudaError_t GuardedInstantiateWithFlags(cudaGraphExec_t* executable, cudaGraph_t graph, unsigned long long flags) {
  return g_guard->InstantiateWith(g_guard->functions().instantiate_with_flags, executable, graph, flags);
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

class Imports {
 public:
  // Error: the library is not there.
  Status Read(const char* library) {
    Result<ImportTable> table = ImportTable::Of(library);
    if (!table.ok()) return Error{table.error()};
    tables_.push_back(std::move(table.value()));
    return Ok{};
  }
  [[nodiscard]] const ImportTable& last() const { return tables_.back(); }

  // Of the library that was read last: `real` is what it imports, `ours` is to come in its place. Error: it does not
  // import it.
  template <typename Function>
  Status Want(const char* symbol, Function*& real, Function* ours) {
    const Result<void*> function = last().Function(symbol);
    if (!function.ok()) return Error{function.error()};
    real = reinterpret_cast<Function*>(function.value());
    wanted_.push_back({tables_.size() - 1, symbol, reinterpret_cast<void*>(ours), function.value()});
    return Ok{};
  }
  template <typename Function>
  void WantIfImported(const char* symbol, Function*& real, Function* ours) {
    (void)Want(symbol, real, ours);
  }

  // All or, with an error, none.
  Status Replace() {
    for (std::size_t i = 0; i < wanted_.size(); ++i) {
      const Result<void*> replaced = tables_[wanted_[i].table].Replace(wanted_[i].symbol, wanted_[i].ours);
      if (replaced.ok()) continue;
      while (i-- > 0) (void)tables_[wanted_[i].table].Replace(wanted_[i].symbol, wanted_[i].real);
      return Error{replaced.error()};
    }
    return Ok{};
  }

 private:
  struct Wanted {
    std::size_t table;
    const char* symbol;
    void* ours;
    void* real;
  };
  std::vector<ImportTable> tables_;
  std::vector<Wanted> wanted_;
};

// What libtorch_cuda calls of CUDA.
Status WantCuda(Imports& imports, GraphGuard::Functions& real) {
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
void WantPython(Imports& imports, GraphGuard::Functions& real) {
  if (!imports.Read("libtorch_python.so").ok()) return;
  imports.WantIfImported("_ZN2at4cuda9CUDAGraph14raw_cuda_graphEv", real.raw_graph, &GuardedRawGraph);
  imports.WantIfImported("_ZN2at4cuda9CUDAGraph19raw_cuda_graph_execEv", real.raw_executable, &GuardedRawExecutable);
}

}  // namespace

GraphGuard* GraphGuard::Install(GraphPools& pools, IsCapturing is_capturing) {
  Imports imports;
  Functions real;
  Status status = WantCuda(imports, real);
  if (status.ok()) {
    WantPython(imports, real);
    g_guard = new GraphGuard(pools, real, std::move(is_capturing));
    status = imports.Replace();
  }
  if (status.ok()) return g_guard;
  Log(LogSeverity::kDebug, "launches of CUDA graphs are not followed: %s", status.error().c_str());
  return nullptr;  // the guard, if there is one, stays: a call may be in it
}

}  // namespace stalloc
