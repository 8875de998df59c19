#include "tests/runtime/training_loops.h"

#include <algorithm>
#include <utility>

namespace stalloc {
namespace {

constexpr Bytes kWeight = 32 * kMiB;
constexpr Bytes kActivation = 48 * kMiB;
constexpr Bytes kTemporary = 24 * kMiB;
constexpr Bytes kSmall = 40 * kKiB;

Bytes Times(Bytes bytes, double factor) { return static_cast<Bytes>(static_cast<double>(bytes) * factor); }

Mark MicroBatch(Pass pass) { return {.kind = MarkKind::kMicrobatch, .pass = pass, .name = {}}; }

}  // namespace

void TrainingLoop::Begin() {
  for (int i = 0; i < kLayers; ++i) weights_.push_back(Allocate(kWeight));
}

void TrainingLoop::End() {
  for (const Kept& kept : kept_) machine_.Free(kept.block);
  for (auto* const blocks : {&state_, &weights_}) {
    for (const Machine::Block block : *blocks) machine_.Free(block);
    blocks->clear();
  }
  kept_.clear();
}

void TrainingLoop::Iterate(int iteration) {
  machine_.OnMark({.kind = MarkKind::kIteration, .index = iteration, .name = {}});
  FreeKept();
  const double batch = BatchOf(iteration);
  machine_.OnMark(MicroBatch(Pass::kForward));
  Forward(iteration, batch);
  AfterForward(iteration);
  machine_.OnMark(MicroBatch(Pass::kBackward));
  Backward(batch);
  machine_.OnMark({.kind = MarkKind::kOptimizer, .name = {}});
  Step();
  AfterStep(iteration);
}

void TrainingLoop::Forward(int iteration, double batch) {
  for (int layer = 0; layer < kLayers; ++layer) {
    const Machine::Block temporary = Allocate(Times(kTemporary, batch));
    activations_.push_back(Allocate(Times(kActivation, batch)));
    const Machine::Block small = Allocate(kSmall);
    InLayer(iteration, activations_.back());
    machine_.Free(temporary);
    machine_.Free(small);
  }
}

void TrainingLoop::Backward(double batch) {
  while (!activations_.empty()) {
    const Machine::Block temporary = Allocate(Times(kTemporary, batch));
    gradients_.push_back(Allocate(kWeight));
    machine_.Free(activations_.back());
    machine_.Free(temporary);
    activations_.pop_back();
  }
}

// The first one makes the state.
void TrainingLoop::Step() {
  const bool first = state_.empty();
  for (const Machine::Block gradient : gradients_) {
    if (first) state_.push_back(Allocate(kWeight));
    const Machine::Block temporary = Allocate(kWeight);
    machine_.Free(temporary);
    machine_.Free(gradient);
  }
  gradients_.clear();
}

void TrainingLoop::Evaluate(double batch) {
  machine_.OnMark({.kind = MarkKind::kFence, .name = "eval"});
  Machine::Block last = Allocate(Times(kActivation, batch));
  for (int layer = 0; layer < kLayers; ++layer) {
    const Machine::Block temporary = Allocate(Times(kTemporary, batch));
    const Machine::Block next = Allocate(Times(kActivation, batch));
    machine_.Free(temporary);
    machine_.Free(std::exchange(last, next));
  }
  machine_.Free(last);
  machine_.OnMark({.kind = MarkKind::kFence, .edge = MarkEdge::kEnd, .name = "eval"});
}

void TrainingLoop::FreeKept() {
  for (Kept& kept : kept_) {
    if (--kept.iterations == 0) machine_.Free(kept.block);
  }
  std::erase_if(kept_, [](const Kept& kept) { return kept.iterations == 0; });
}

namespace {

class VaryingLoop final : public TrainingLoop {
  using TrainingLoop::TrainingLoop;
  double BatchOf(int iteration) override {
    const double batch = std::uniform_real_distribution<double>(0.6, 1)(random_);
    return iteration < kChange ? batch : 1.5 * batch;
  }
};

// A large block is made of growing pieces, the old one freed after the new one is there, and each leaves a small one.
class ConcatenatingLoop final : public TrainingLoop {
  using TrainingLoop::TrainingLoop;
  void AfterForward(int /*iteration*/) override {
    const Bytes piece = Between(8 * kMiB, 12 * kMiB);
    Machine::Block all = Allocate(piece);
    for (Bytes pieces = 2; pieces <= 12; ++pieces) {
      const Machine::Block longer = Allocate(pieces * piece);
      machine().Free(std::exchange(all, longer));
      Keep(Allocate(Between(kMiB, 3 * kMiB)), 1 + static_cast<int>(random_() % 4));
    }
    machine().Free(all);
  }
};

class CarryingLoop final : public TrainingLoop {
  using TrainingLoop::TrainingLoop;
  void AfterStep(int /*iteration*/) override { Keep(Allocate(Between(16 * kMiB, 96 * kMiB)), 2); }
};

class EvaluatingLoop final : public TrainingLoop {
  using TrainingLoop::TrainingLoop;
  double BatchOf(int /*iteration*/) override { return Drift(&batch_); }
  void AfterStep(int iteration) override {
    if (iteration % 5 == 4) Evaluate(3 * Drift(&evaluated_));
  }
  double Drift(double* batch) {
    *batch = std::clamp(*batch * (random_() % 2 == 0 ? 1.01 : 0.99), 0.9, 1.1);
    return *batch;
  }
  double batch_ = 1;
  double evaluated_ = 1;
};

// What one stream computes the other one sends, and buffers the other way.
class TwoStreamsLoop final : public TrainingLoop {
  using TrainingLoop::TrainingLoop;
  double BatchOf(int /*iteration*/) override { return random_() % 2 == 0 ? 1 : 0.8; }
  void InLayer(int /*iteration*/, Machine::Block activation) override {
    machine().RecordStream(activation, kSide);
    const Bytes bytes = (random_() % 2 == 0 ? 20 : 36) * kMiB;
    const Machine::Block buffer = Allocate(bytes, kSide);
    machine().RecordStream(buffer, kMain);
    machine().Free(buffer);
  }
};

class LongerLoop final : public TrainingLoop {
  using TrainingLoop::TrainingLoop;
  double BatchOf(int iteration) override {
    const double batch = 0.7 + 0.1 * static_cast<double>(random_() % 4);
    return iteration < kChange ? batch : 2 * batch;
  }
};

template <typename Loop>
LoopKind Kind(std::string name, bool is_steady = true, bool changes = false) {
  return {std::move(name), changes, is_steady,
          [](Machine& machine, std::uint64_t seed) { return std::make_unique<Loop>(machine, seed); }};
}

class TracingMachine final : public Machine {
 public:
  TracingMachine() {
    trace.streams = {{.ordinal = 0, .device = kCpuDevice, .handle = TrainingLoop::kMain},
                     {.ordinal = 1, .device = kCpuDevice, .handle = TrainingLoop::kSide}};
    trace.fingerprint.world_size = 1;
    trace.complete = true;
  }
  Block Allocate(Bytes bytes, StreamHandle stream) override {
    trace.events.push_back({.kind = EventKind::kAlloc,
                            .device = kCpuDevice,
                            .allocation = trace.allocations,
                            .bytes = bytes,
                            .stream = OrdinalOf(stream)});
    return trace.allocations++;
  }
  void Free(Block block) override { trace.events.push_back({.kind = EventKind::kFree, .allocation = block}); }
  void RecordStream(Block block, StreamHandle stream) override {
    trace.events.push_back({.kind = EventKind::kRecordStream, .allocation = block, .stream = OrdinalOf(stream)});
  }
  void OnMark(const Mark& mark) override {
    trace.events.push_back({.kind = EventKind::kMark, .mark = static_cast<std::uint32_t>(trace.marks.size())});
    trace.marks.push_back(mark);
  }

  Trace trace;

 private:
  static std::uint32_t OrdinalOf(StreamHandle stream) { return stream == TrainingLoop::kMain ? 0 : 1; }
};

}  // namespace

std::vector<LoopKind> LoopKinds() {
  return {Kind<VaryingLoop>("Varying", true, true), Kind<ConcatenatingLoop>("Concatenating", /*is_steady=*/false),
          Kind<CarryingLoop>("Carrying"),           Kind<EvaluatingLoop>("Evaluating"),
          Kind<TwoStreamsLoop>("TwoStreams"),       Kind<LongerLoop>("Longer", true, true)};
}

Trace TraceOf(const LoopKind& kind, int iterations) {
  TracingMachine machine;
  const auto loop = kind.make(machine, 1);
  loop->Begin();
  for (int i = 0; i < iterations; ++i) loop->Iterate(i);
  return std::move(machine.trace);
}

}  // namespace stalloc
