// CUDA's graph functions without a device. Handles are numbers that are given out again once they are free, as CUDA's
// are. One at a time; thread-safe.
#pragma once

#include <cuda_runtime_api.h>

#include <map>
#include <mutex>
#include <set>
#include <stdexcept>
#include <vector>

#include "allocator/torch/graph_guard.h"

namespace stalloc {

class FakeGraphs {
 public:
  FakeGraphs() { now_ = this; }
  ~FakeGraphs() { now_ = nullptr; }

  [[nodiscard]] static GraphGuard::Functions Functions() {
    return {.begin_capture = Begin,
            .end_capture = End,
            .instantiate = Instantiate,
            .instantiate_with_flags = Instantiate,
            .launch = Launch,
            .destroy_executable = DestroyExecutable,
            .destroy_graph = DestroyGraph,
            .raw_graph = Raw,
            .raw_executable = Raw};
  }

  [[nodiscard]] bool IsCapturing(cudaStream_t stream) {
    const std::lock_guard lock(mutex_);
    return capturing_.contains(stream);
  }
  // Executables in the order of their launches.
  std::vector<cudaGraphExec_t> Launched() {
    const std::lock_guard lock(mutex_);
    return std::exchange(launched_, {});
  }

  cudaError_t error = cudaSuccess;  // of all calls
  void* raw = nullptr;              // null: the member function throws

 private:
  template <typename Call>
  static cudaError_t With(Call&& call) {
    const std::lock_guard lock(now_->mutex_);
    if (now_->error == cudaSuccess) call(*now_);
    return now_->error;
  }
  template <typename Handle>
  static Handle Least(std::set<std::uintptr_t>& taken) {
    std::uintptr_t handle = 0x1000;
    while (!taken.insert(handle).second) handle += 0x1000;
    return reinterpret_cast<Handle>(handle);
  }
  static cudaError_t Begin(cudaStream_t stream, cudaStreamCaptureMode) {
    return With([&](FakeGraphs& now) { now.capturing_.insert(stream); });
  }
  static cudaError_t End(cudaStream_t stream, cudaGraph_t* graph) {
    return With([&](FakeGraphs& now) {
      now.capturing_.erase(stream);
      if (graph != nullptr) *graph = Least<cudaGraph_t>(now.graphs_);
    });
  }
  static cudaError_t Instantiate(cudaGraphExec_t* executable, cudaGraph_t, unsigned long long) {
    return With([&](FakeGraphs& now) { *executable = Least<cudaGraphExec_t>(now.executables_); });
  }
  static cudaError_t Launch(cudaGraphExec_t executable, cudaStream_t) {
    return With([&](FakeGraphs& now) { now.launched_.push_back(executable); });
  }
  static cudaError_t DestroyExecutable(cudaGraphExec_t executable) {
    return With([&](FakeGraphs& now) { now.executables_.erase(reinterpret_cast<std::uintptr_t>(executable)); });
  }
  static cudaError_t DestroyGraph(cudaGraph_t graph) {
    return With([&](FakeGraphs& now) { now.graphs_.erase(reinterpret_cast<std::uintptr_t>(graph)); });
  }
  static void* Raw(void*) {
    if (now_->raw == nullptr) throw std::runtime_error("no handle");
    return now_->raw;
  }

  static inline FakeGraphs* now_ = nullptr;
  std::mutex mutex_;
  std::set<cudaStream_t> capturing_;
  std::set<std::uintptr_t> graphs_;
  std::set<std::uintptr_t> executables_;
  std::vector<cudaGraphExec_t> launched_;
};

inline cudaStream_t StreamOf(std::uintptr_t number) { return reinterpret_cast<cudaStream_t>(number); }

// What torch's CUDAGraph calls, in its order, with the pool's openings.
struct FakeTorchGraph {
  GraphGuard& guard;
  std::uint32_t pool = 1;
  cudaStream_t stream = StreamOf(16);
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;

  void CaptureBegin() {
    guard.Opens(pool, 0);
    EXPECT_EQ(guard.BeginCapture(stream, cudaStreamCaptureModeGlobal), cudaSuccess);
  }
  void CaptureEnd(bool keeps_graph = false, unsigned long long flags = cudaGraphInstantiateFlagAutoFreeOnLaunch) {
    EXPECT_EQ(guard.EndCapture(stream, &graph), cudaSuccess);
    guard.Closes(pool);
    EXPECT_EQ(guard.InstantiateWith(guard.functions().instantiate_with_flags, &executable, graph, flags), cudaSuccess);
    if (!keeps_graph) {
      EXPECT_EQ(guard.DestroyGraph(graph), cudaSuccess);
    }
  }
  FakeTorchGraph& Capture() {
    CaptureBegin();
    CaptureEnd();
    return *this;
  }
  cudaError_t Replay(std::uintptr_t on = 16) { return guard.Launch(executable, StreamOf(on)); }
  void Reset() { EXPECT_EQ(guard.DestroyExecutable(executable), cudaSuccess); }
};

}  // namespace stalloc
