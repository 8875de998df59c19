#include "allocator/runtime/run_signature.h"

#include <algorithm>
#include <cstdio>
#include <span>
#include <utility>

#include "allocator/base/mutex.h"
#include "proto/model/json_writer.h"

namespace stalloc {
namespace {

thread_local Bytes t_previous = 0;

// Source: D. Stafford, "Better Bit Mixing" (2011), mix 13.
std::uint64_t Mixed(std::uint64_t bits) noexcept {
  bits = (bits ^ (bits >> 30)) * 0xbf58476d1ce4e5b9u;
  bits = (bits ^ (bits >> 27)) * 0x94d049bb133111ebu;
  return bits ^ (bits >> 31);
}

}  // namespace

void RunSignature::Add(DeviceIndex device, Bytes requested, Bytes live) noexcept {
  if (requested <= kBlockAlignment) return;
  const Bytes bytes = BlockBytes(requested);
  const std::uint64_t pair = Mixed(Mixed(std::exchange(t_previous, bytes)) + bytes);
  const auto index =
      std::min(static_cast<std::size_t>(std::max<DeviceIndex>(device, kCpuDevice) - kCpuDevice), kDevices - 1);
  const LockGuard lock(mutex_);
  if (fences_ > 0) return;
  Phase& phase = phases_[phase_];
  ++phase.requests;
  phase.bytes += bytes;
  phase.order += pair;
  Bytes& began_with = phase.began_with[index];
  if (began_with == kNotBegun) began_with = live - std::min(live, bytes);
  phase.growth = std::max(phase.growth, live - std::min(live, began_with));
  if (std::uint64_t* const count = phase.counts.Find(bytes); count != nullptr) {
    ++*count;
  } else if (phase.counts.size() < kMostSizes) {
    phase.counts.Insert(bytes, 1);
  } else {
    ++phase.other_requests;
    phase.other_bytes += bytes;
  }
}

// REQUIRES: mutex_ is held.
void RunSignature::Begin(std::size_t phase) noexcept {
  if (phase < kMostPhases) {
    phase_ = phase;
  } else {
    Close();
  }
}

void RunSignature::See(const Mark& mark) noexcept {
  if (!open()) return;
  const LockGuard lock(mutex_);
  const bool begins = mark.edge == MarkEdge::kBegin;
  if (mark.kind == MarkKind::kFence) {
    if (begins) ++fences_;
    if (!begins && fences_ > 0) --fences_;
    return;
  }
  if (fences_ > 0) return;
  const bool loop_begins = (mark.kind == MarkKind::kInit && !begins) || (mark.kind == MarkKind::kMicrobatch && begins);
  if (loop_begins && phase_ == 0) Begin(1);
  if (mark.kind != MarkKind::kIteration || !begins || (explicit_ && mark.automatic)) return;
  const bool first_explicit = !mark.automatic && !std::exchange(explicit_, !mark.automatic);
  if (mark.automatic) {
    Begin(std::max<std::size_t>(phase_, 1) + 1);  // the first one began without a mark
  } else if (!first_explicit || phase_ == 0) {
    Begin(phase_ + 1);
  }
}

// Json ----------------------------------------------------------------------------------------------------------------

struct RunSignature::Figures : Sums {
  bool begun = false;
  std::vector<std::pair<Bytes, std::uint64_t>> counts;

  void Write(JsonWriter* json) const {
    char digits[17];
    std::snprintf(digits, sizeof(digits), "%016llx", static_cast<unsigned long long>(order));
    json->Field("requests", requests);
    json->Field("bytes", bytes);
    json->Field("growth", growth);
    json->Field("order", digits);
    json->BeginArray("others");
    json->Value(other_requests);
    json->Value(other_bytes);
    json->EndArray();
    json->BeginArray("sizes");
    for (const auto& [size, count] : counts) {
      json->Value(size);
      json->Value(count);
    }
    json->EndArray();
  }
};

std::vector<RunSignature::Figures> RunSignature::Copy() const {
  std::vector<Figures> figures(kMostPhases);
  for (Figures& of_phase : figures) of_phase.counts.reserve(kMostSizes);  // none of it under the lock
  const LockGuard lock(mutex_);
  for (std::size_t i = 0; i <= phase_; ++i) {
    const Phase& phase = phases_[i];
    Figures& to = figures[i];
    static_cast<Sums&>(to) = phase;
    to.begun = true;
    phase.counts.ForEach([&](Bytes size, std::uint64_t count) { to.counts.emplace_back(size, count); });
  }
  return figures;
}

std::string RunSignature::Json() const {
  std::vector<Figures> figures = Copy();
  for (Figures& phase : figures) std::sort(phase.counts.begin(), phase.counts.end());
  JsonWriter json;
  json.BeginObject();
  json.BeginObject("set_up");
  figures.front().Write(&json);
  json.EndObject();
  json.BeginArray("iterations");
  for (const Figures& phase : std::span(figures).subspan(1)) {
    if (!phase.begun) break;
    json.BeginObject();
    phase.Write(&json);
    json.EndObject();
  }
  json.EndArray();
  json.EndObject();
  return json.text();
}

}  // namespace stalloc
