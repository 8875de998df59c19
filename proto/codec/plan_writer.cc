#include "proto/codec/plan_writer.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "proto/codec/frame.h"
#include "proto/codec/messages.h"
#include "proto/codec/whole_file.h"
#include "proto/model/plan_shape.h"
#include "proto/plan.pb.h"

namespace stalloc {
namespace {

void ToMessage(const Slot& slot, proto::Slot* message) {
  message->set_offset(slot.offset);
  message->set_capacity(slot.capacity);
}

void ToMessage(const Script& script, proto::Script* message) {
  for (const Phase& phase : script.phases) {
    proto::Phase* out = message->add_phases();
    ToMessage(phase.mark, out->mutable_mark());
    out->set_first_entry(phase.first_entry);
  }
  for (const Entry& entry : script.entries) {
    message->add_bytes(entry.bytes);
    message->add_stream(entry.stream);
    message->add_slot_plus_one(entry.slot + 1);  // kNoSlot wraps to zero
    message->add_entry_class(static_cast<proto::EntryClass>(entry.entry_class));
    message->add_max_bytes(entry.max_bytes);
    message->add_min_bytes(entry.min_bytes);
    message->add_expected_life(entry.expected_life);
  }
  const auto is_lent = [](const Entry& entry) { return entry.lent_slot != kNoSlot; };
  if (std::none_of(script.entries.begin(), script.entries.end(), is_lent)) return;
  for (const Entry& entry : script.entries) message->add_lent_plus_one(entry.lent_slot + 1);
}

void ToMessage(const LentPool& pool, proto::LentPool* message) {
  message->set_number(pool.number);
  message->set_requests(pool.requests);
  message->set_layout(pool.layout);
  message->set_bytes(pool.bytes);
  message->mutable_first_pieces()->Assign(pool.first_pieces.begin(), pool.first_pieces.end());
  for (const Slot& range : pool.own) ToMessage(range, message->add_own());
}

void ToMessage(const StreamEdge& edge, proto::StreamEdge* message) {
  message->set_from_slot(edge.from_slot);
  message->set_to_slot(edge.to_slot);
  message->set_from_stream(edge.from_stream);
  message->set_to_stream(edge.to_stream);
}

void ToMessage(const Predicted& predicted, proto::Predicted* message) {
  message->set_peak_live_bytes(predicted.peak_live_bytes);
  message->set_planned_peak_bytes(predicted.planned_peak_bytes);
  message->set_upstream_peak_bytes(predicted.upstream_peak_bytes);
  message->set_lower_bound_bytes(predicted.lower_bound_bytes);
  message->set_efficiency(predicted.efficiency);
  message->set_expandable_bytes(predicted.expandable_bytes);
}

void ToMessage(const DevicePlan& device, proto::DevicePlan* message) {
  message->set_device(device.device);
  message->set_arena_bytes(device.arena_bytes);
  for (const Slot& slot : device.slots) ToMessage(slot, message->add_slots());
  for (const Script& script : device.prologue) ToMessage(script, message->add_prologue());
  for (const Script& script : device.cycle) ToMessage(script, message->add_cycle());
  for (const StreamEdge& edge : device.stream_edges) ToMessage(edge, message->add_stream_edges());
  for (const StreamInfo& stream : device.streams) ToMessage(stream, message->add_streams());
  ToMessage(device.predicted, message->mutable_predicted());
  if (!device.kept.entries.empty()) ToMessage(device.kept, message->mutable_kept());
  if (device.turns != 1) message->set_turns(device.turns);
  for (const LentPool& pool : device.lent_pools) ToMessage(pool, message->add_lent_pools());
  for (const Slot& slot : device.lent_slots) ToMessage(slot, message->add_lent_slots());
}

}  // namespace

std::string EncodePlan(const Plan& plan) {
  proto::Plan message;
  message.set_format_version(kPlanFormatVersion);
  ToMessage(plan.fingerprint, message.mutable_fingerprint());
  for (const DevicePlan& device : plan.devices) ToMessage(device, message.add_devices());
  message.set_planner_version(plan.planner_version);
  message.set_solver(plan.solver);

  std::string bytes(kPlanMagic);
  const std::size_t frame = BeginFrame(&bytes);
  message.AppendToString(&bytes);
  FinishFrame(frame, &bytes);
  return bytes;
}

absl::Status WritePlanFile(const std::string& path, const Plan& plan) {
  if (const Status shape = CheckPlanShape(plan); !shape.ok()) {
    return absl::InternalError(absl::StrCat(path, ": not written: ", shape.error()));
  }
  return WriteWholeFile(path, EncodePlan(plan));
}

}  // namespace stalloc
