#include "proto/codec/messages.h"

#include "proto/codec/trace_chunk_writer.h"

namespace stalloc {

void ToMessage(const Fingerprint& fingerprint, proto::Fingerprint* message) {
  message->set_torch_version(ValidUtf8(fingerprint.torch_version));
  message->set_device_name(ValidUtf8(fingerprint.device_name));
  message->set_device_bytes(fingerprint.device_bytes);
  message->set_driver_version(ValidUtf8(fingerprint.driver_version));
  message->set_world_size(fingerprint.world_size);
  message->set_rank(fingerprint.rank);
  message->set_local_rank(fingerprint.local_rank);
  for (const std::string& argument : fingerprint.command_line) message->add_command_line(ValidUtf8(argument));
  message->set_stalloc_version(ValidUtf8(fingerprint.stalloc_version));
  message->set_trace_mode(ValidUtf8(fingerprint.trace_mode));
}

void ToMessage(const Mark& mark, proto::Mark* message) {
  message->set_kind(static_cast<proto::MarkKind>(mark.kind));
  message->set_edge(static_cast<proto::MarkEdge>(mark.edge));
  message->set_pass(static_cast<proto::Pass>(mark.pass));
  message->set_chunk(mark.chunk);
  message->set_index(mark.index);
  message->set_name(ValidUtf8(mark.name));
  message->set_automatic(mark.automatic);
}

void ToMessage(const StreamInfo& stream, proto::StreamInfo* message) {
  message->set_ordinal(stream.ordinal);
  message->set_device(stream.device);
  message->set_handle(stream.handle);
}

Fingerprint FromMessage(const proto::Fingerprint& message) {
  Fingerprint fingerprint;
  fingerprint.torch_version = message.torch_version();
  fingerprint.device_name = message.device_name();
  fingerprint.device_bytes = message.device_bytes();
  fingerprint.driver_version = message.driver_version();
  fingerprint.world_size = message.world_size();
  fingerprint.rank = message.rank();
  fingerprint.local_rank = message.local_rank();
  fingerprint.command_line.assign(message.command_line().begin(), message.command_line().end());
  fingerprint.stalloc_version = message.stalloc_version();
  fingerprint.trace_mode = message.trace_mode();
  return fingerprint;
}

StreamInfo FromMessage(const proto::StreamInfo& message) {
  return {.ordinal = message.ordinal(), .device = message.device(), .handle = message.handle()};
}

std::string FromMessage(const proto::Mark& message, Mark* mark) {
  if (message.kind() == proto::MARK_UNSPECIFIED || !proto::MarkKind_IsValid(message.kind())) {
    return "unknown mark kind " + std::to_string(message.kind());
  }
  if (message.edge() == proto::EDGE_UNSPECIFIED || !proto::MarkEdge_IsValid(message.edge())) {
    return "unknown mark edge " + std::to_string(message.edge());
  }
  if (!proto::Pass_IsValid(message.pass())) return "unknown pass " + std::to_string(message.pass());
  mark->kind = static_cast<MarkKind>(message.kind());
  mark->edge = static_cast<MarkEdge>(message.edge());
  mark->pass = static_cast<Pass>(message.pass());
  mark->chunk = message.chunk();
  mark->index = message.index();
  mark->name = message.name();
  mark->automatic = message.automatic();
  return {};
}

}  // namespace stalloc
