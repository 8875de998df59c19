// Training loops whose requests change over a long run, on a machine that may be a trace or a runtime.
#pragma once

#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "proto/model/trace.h"

namespace stalloc {

// Where a loop runs.
class Machine {
 public:
  using Block = std::size_t;
  virtual ~Machine() = default;
  [[nodiscard]] virtual Block Allocate(Bytes bytes, StreamHandle stream) = 0;
  virtual void Free(Block block) = 0;
  virtual void RecordStream(Block block, StreamHandle stream) = 0;
  virtual void OnMark(const Mark& mark) = 0;
};

// Weights, a forward pass that keeps activations, a backward pass that frees them and makes gradients, a step that
// frees these. Activations grow with the batch.
class TrainingLoop {
 public:
  static constexpr StreamHandle kMain = 0;
  static constexpr StreamHandle kSide = 0x10;

  TrainingLoop(Machine& machine, std::uint64_t seed) : random_(seed), machine_(machine) {}
  virtual ~TrainingLoop() = default;
  // Before the first iteration, and after the last one.
  void Begin();
  void End();
  void Iterate(int iteration);

 protected:
  static constexpr int kLayers = 12;
  // Of the usual batch.
  [[nodiscard]] virtual double BatchOf(int /*iteration*/) { return 1; }
  virtual void AfterForward(int /*iteration*/) {}
  virtual void AfterStep(int /*iteration*/) {}
  virtual void InLayer(int /*iteration*/, Machine::Block /*activation*/) {}

  [[nodiscard]] Machine::Block Allocate(Bytes bytes, StreamHandle stream = kMain) {
    return machine_.Allocate(bytes, stream);
  }
  // It lives until so many iterations later.
  void Keep(Machine::Block block, int iterations) { kept_.push_back({block, iterations}); }
  [[nodiscard]] Bytes Between(Bytes least, Bytes most) {
    return std::uniform_int_distribution<Bytes>(least, most)(random_);
  }
  [[nodiscard]] Machine& machine() { return machine_; }
  void Evaluate(double batch);

  std::mt19937_64 random_;

 private:
  struct Kept {
    Machine::Block block = 0;
    int iterations = 0;
  };
  void Forward(int iteration, double batch);
  void Backward(double batch);
  void Step();
  void FreeKept();

  Machine& machine_;
  std::vector<Machine::Block> weights_;
  std::vector<Machine::Block> state_;
  std::vector<Machine::Block> activations_;
  std::vector<Machine::Block> gradients_;
  std::vector<Kept> kept_;
};

inline constexpr int kIterations = 1000;
inline constexpr int kChange = kIterations / 2;

struct LoopKind {
  std::string name;
  bool changes = false;    // its sizes rise for good at kChange
  bool is_steady = false;  // between that it needs about the same
  std::function<std::unique_ptr<TrainingLoop>(Machine&, std::uint64_t seed)> make;
};
[[nodiscard]] std::vector<LoopKind> LoopKinds();

// The first iterations of a loop.
[[nodiscard]] Trace TraceOf(const LoopKind& kind, int iterations);

}  // namespace stalloc
