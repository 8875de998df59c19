// Both readers of plan files: protozero's in the training process, and protobuf's generated one. What the former
// accepts passes the shape check and comes back equal from what EncodePlan makes of it; what it refuses, it refuses
// with the file's name. A message that protobuf reads and writes again is to both the same.
#include <algorithm>

#include "absl/strings/match.h"
#include "proto/codec/frame.h"
#include "proto/codec/plan_reader.h"
#include "proto/codec/plan_writer.h"
#include "proto/model/plan_shape.h"
#include "proto/plan.pb.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/quiet_protobuf.h"
#include "tests/proto/random_formats.h"

namespace stalloc::fuzz {
namespace {

constexpr char kName[] = "fuzz.plan";

template <typename Column, typename Field>
bool SameColumn(const Column& column, const std::vector<Entry>& entries, Field field) {
  if (static_cast<std::size_t>(column.size()) != entries.size()) return false;
  for (int i = 0; i < column.size(); ++i) {
    if (column.Get(i) != field(entries[static_cast<std::size_t>(i)])) return false;
  }
  return true;
}

bool Same(const proto::Script& message, const Script& script) {
  const std::vector<Entry>& entries = script.entries;
  return static_cast<std::size_t>(message.phases_size()) == script.phases.size() &&
         SameColumn(message.bytes(), entries, [](const Entry& e) { return e.bytes; }) &&
         SameColumn(message.stream(), entries, [](const Entry& e) { return e.stream; }) &&
         SameColumn(message.slot_plus_one(), entries, [](const Entry& e) { return e.slot + 1; }) &&
         SameColumn(message.entry_class(), entries, [](const Entry& e) { return static_cast<int>(e.entry_class); }) &&
         SameColumn(message.max_bytes(), entries, [](const Entry& e) { return e.max_bytes; }) &&
         SameColumn(message.min_bytes(), entries, [](const Entry& e) { return e.min_bytes; }) &&
         SameColumn(message.expected_life(), entries, [](const Entry& e) { return e.expected_life; });
}

bool Same(const proto::Slot& message, const Slot& slot) {
  return message.offset() == slot.offset && message.capacity() == slot.capacity;
}

bool Same(const proto::DevicePlan& message, const DevicePlan& device);

template <typename Messages, typename Values>
bool SameEach(const Messages& messages, const Values& values) {
  return std::equal(messages.begin(), messages.end(), values.begin(), values.end(),
                    [](const auto& message, const auto& value) { return Same(message, value); });
}

bool Same(const proto::DevicePlan& message, const DevicePlan& device) {
  return message.device() == device.device && message.arena_bytes() == device.arena_bytes &&
         SameEach(message.slots(), device.slots) && SameEach(message.prologue(), device.prologue) &&
         SameEach(message.cycle(), device.cycle);
}

bool Accepts(std::string_view file) {
  const Result<Plan> plan = ParsePlan(file, kName);
  if (!plan.ok()) {
    Require(absl::StartsWith(plan.error(), "fuzz.plan: "), "errors name the file");
    return false;
  }
  Require(CheckPlanShape(plan.value()).ok(), "an accepted plan has a plan's shape");
  const std::string encoded = EncodePlan(plan.value());
  const Result<Plan> again = ParsePlan(encoded, kName);
  Require(again.ok(), "what was accepted can be written and read again");
  // Compared as bytes, which hold every field: an efficiency that is not a number is not equal to itself.
  Require(EncodePlan(again.value()) == encoded, "what was accepted comes back equal");
  return true;
}

void CheckAgainstProtobuf(std::string_view file) {
  const std::size_t head = kMagicBytes + kFrameHeaderBytes;
  proto::Plan message;
  if (file.size() <= head || !message.ParseFromString(std::string(file.substr(head)))) return;
  std::string canonical(kPlanMagic);
  const std::size_t frame = BeginFrame(&canonical);
  if (!message.AppendToString(&canonical) || canonical.size() == head) return;
  FinishFrame(frame, &canonical);
  const Result<Plan> plan = ParsePlan(canonical, kName);
  if (plan.ok()) Require(SameEach(message.devices(), plan.value().devices), "both readers see the same plan");
}

}  // namespace

std::vector<std::string> Seeds() {
  std::vector<std::string> seeds;
  for (std::uint64_t seed = 0; seed < 8; ++seed) seeds.push_back(EncodePlan(RandomFormats(seed).MakePlan()));
  return seeds;
}

}  // namespace stalloc::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace stalloc::fuzz;  // NOLINT
  [[maybe_unused]] static const bool quiet = QuietProtobuf();
  const std::string_view file(reinterpret_cast<const char*>(data), size);
  const bool raw = Accepts(file);
  const std::string fixed = WithRightFrames(file);
  CheckAgainstProtobuf(fixed);
  return Accepts(fixed) || raw ? 0 : -1;
}
