// GraphGuard: sees every capture and every launch of CUDA graphs that torch makes, before CUDA does.
//
//   CUDAGraph::capture_begin    the allocator opens the pool, cudaStreamBeginCapture          this thread
//   CUDAGraph::capture_end      cudaStreamEndCapture -> graph, the allocator closes the pool,
//                               cudaGraphInstantiate* -> executable, cudaGraphDestroy
//   CUDAGraph::replay           cudaGraphLaunch
//   CUDAGraph::reset            releasePool, cudaGraphDestroy, cudaGraphExecDestroy
//
// So a capture is of the pool that its thread opened last, a graph of the stream's capture, an executable of the graph
// that it was made from. Installed in the import tables of libtorch_cuda.so and libtorch_python.so, whose calls of
// CUDA's graph functions come here then. Calls for unknown pools pass unchanged.
//
// A pool is not followable any more, before the call goes on, where its graphs can be launched unseen: a launch into a
// stream that is captured, an executable for launches from the device, a handle that the program gets
// (CUDAGraph::raw_cuda_graph, raw_cuda_graph_exec, as Python calls them). Thread-safe.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <functional>

#include "allocator/graphs/graph_handles.h"
#include "allocator/graphs/graph_pools.h"
#include "proto/model/result.h"

namespace stalloc {

class UncountedBytes;

class GraphGuard {
 public:
  using Instantiate = cudaError_t (*)(cudaGraphExec_t*, cudaGraph_t, unsigned long long flags);
  using RawHandle = void* (*)(void* torch_graph);  // a member function of CUDAGraph; may throw
  // The real ones. Null: not imported, so nobody calls it.
  struct Functions {
    cudaError_t (*begin_capture)(cudaStream_t, cudaStreamCaptureMode) = nullptr;
    cudaError_t (*end_capture)(cudaStream_t, cudaGraph_t*) = nullptr;
    Instantiate instantiate = nullptr;
    Instantiate instantiate_with_flags = nullptr;
    cudaError_t (*launch)(cudaGraphExec_t, cudaStream_t) = nullptr;
    cudaError_t (*destroy_executable)(cudaGraphExec_t) = nullptr;
    cudaError_t (*destroy_graph)(cudaGraph_t) = nullptr;
    RawHandle raw_graph = nullptr;
    RawHandle raw_executable = nullptr;
  };
  using IsCapturing = std::function<bool(cudaStream_t)>;  // true where it is unknown

  // `pools`: lives as long.
  GraphGuard(GraphPools& pools, const Functions& functions, IsCapturing is_capturing);

  // Puts one into the import tables of this process's torch, for good. Null, and a debug line says why, where a torch
  // does not import what is needed, or imports what is not known here; then nothing is changed. What the
  // device has less after an executable was made is counted. `pools`, `uncounted`: live for ever. Once.
  static GraphGuard* Install(GraphPools& pools, UncountedBytes& uncounted, IsCapturing is_capturing);

  // The allocator is about to open the pool on this thread, or has closed it. False: it must not be opened now.
  bool Opens(std::uint32_t pool, DeviceIndex device);
  void Closes(std::uint32_t pool) noexcept;
  // The pool's last user is about to leave it.
  void Left(std::uint32_t pool) noexcept;

  // In the place of CUDA's functions of these names, and torch's.
  cudaError_t BeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) noexcept;
  cudaError_t EndCapture(cudaStream_t stream, cudaGraph_t* graph) noexcept;
  cudaError_t InstantiateWith(Instantiate real, cudaGraphExec_t* executable, cudaGraph_t graph,
                              unsigned long long flags) noexcept;
  // A refused launch returns cudaErrorMemoryAllocation, cudaErrorIllegalState (what was carried is gone) or
  // cudaErrorNotPermitted (not ordered); graph_error.h has the words.
  cudaError_t Launch(cudaGraphExec_t executable, cudaStream_t stream) noexcept;
  cudaError_t DestroyExecutable(cudaGraphExec_t executable) noexcept;
  cudaError_t DestroyGraph(cudaGraph_t graph) noexcept;
  void* RawGraph(void* torch_graph);
  void* RawExecutable(void* torch_graph);

  [[nodiscard]] const Functions& functions() const noexcept { return functions_; }

 private:
  [[nodiscard]] bool IsCaptured(cudaStream_t stream) const noexcept;

  GraphPools& pools_;
  const Functions functions_;
  const IsCapturing is_capturing_;
  GraphHandles handles_;
};

}  // namespace stalloc
