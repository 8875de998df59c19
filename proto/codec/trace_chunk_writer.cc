#include "proto/codec/trace_chunk_writer.h"

#include <algorithm>
#include <string_view>

#include "proto/codec/frame.h"
#include "proto/codec/protozero.h"

namespace stalloc {
namespace {

// Field numbers of trace.proto.
namespace chunk_field {
enum : protozero::pbf_tag_type {
  kFormatVersion = 1,
  kFirstEvent = 2,
  kFingerprint = 3,
  kKind = 4,
  kSubject = 5,
  kValue = 6,
  kStream = 7,
  kThread = 8,
  kTimeDelta = 9,
  kFlags = 10,
  kMarks = 11,
  kStreams = 12,
  kTimeOrigin = 13,
  kLast = 14,
  kTexts = 15,
  kTensors = 16,
  kStack = 17,
  kCalls = 18,
  kLiveBefore = 19,
  kUses = 20,
  kLayerInputs = 21,
  kCapturedAddress = 22,
};
}  // namespace chunk_field

// Length of the UTF-8 sequence that `text` starts with; 0 when it starts with none (RFC 3629: shortest form, no
// surrogates).
std::size_t SequenceLength(std::string_view text) {
  const auto byte = [&](std::size_t i) -> unsigned { return static_cast<unsigned char>(text[i]); };
  const unsigned lead = byte(0);
  if (lead < 0x80) return 1;
  const std::size_t length = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  if (lead < 0xc2 || lead > 0xf4 || text.size() < length) return 0;
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
  }
  const unsigned second = byte(1);
  if ((lead == 0xe0 && second < 0xa0) || (lead == 0xed && second > 0x9f)) return 0;
  if ((lead == 0xf0 && second < 0x90) || (lead == 0xf4 && second > 0x8f)) return 0;
  return length;
}

void WriteFingerprint(const Fingerprint& fingerprint, protozero::pbf_writer writer) {
  writer.add_string(1, ValidUtf8(fingerprint.torch_version));
  writer.add_string(2, ValidUtf8(fingerprint.device_name));
  writer.add_uint64(3, fingerprint.device_bytes);
  writer.add_string(4, ValidUtf8(fingerprint.driver_version));
  writer.add_uint32(5, fingerprint.world_size);
  writer.add_uint32(6, fingerprint.rank);
  writer.add_uint32(7, fingerprint.local_rank);
  for (const std::string& argument : fingerprint.command_line) writer.add_string(8, ValidUtf8(argument));
  writer.add_string(9, ValidUtf8(fingerprint.stalloc_version));
  writer.add_string(10, ValidUtf8(fingerprint.trace_mode));
}

void WriteMark(const Mark& mark, protozero::pbf_writer writer) {
  writer.add_enum(1, static_cast<std::int32_t>(mark.kind));
  writer.add_enum(2, static_cast<std::int32_t>(mark.edge));
  writer.add_enum(3, static_cast<std::int32_t>(mark.pass));
  writer.add_sint32(4, mark.chunk);
  writer.add_sint32(5, mark.index);
  writer.add_string(6, ValidUtf8(mark.name));
  writer.add_bool(7, mark.automatic);
}

void WriteStream(const StreamInfo& stream, protozero::pbf_writer writer) {
  writer.add_uint32(1, stream.ordinal);
  writer.add_sint32(2, stream.device);
  writer.add_uint64(3, stream.handle);
}

// One column of `tensors` at a time, as the message has them.
void WriteTensors(const std::vector<NamedTensor>& tensors, protozero::pbf_writer writer) {
  const auto column = [&](protozero::pbf_tag_type field, const auto& value) {
    protozero::packed_field_uint64 packed(writer, field);
    for (const NamedTensor& tensor : tensors) packed.add_element(value(tensor));
  };
  column(1, [](const NamedTensor& tensor) { return tensor.allocation; });
  column(2, [](const NamedTensor& tensor) { return static_cast<std::uint64_t>(tensor.role); });
  column(3, [](const NamedTensor& tensor) { return std::uint64_t{tensor.name}; });
  column(4, [](const NamedTensor& tensor) { return tensor.offset; });
  column(5, [](const NamedTensor& tensor) { return tensor.bytes; });
}

void WriteCalls(const std::vector<StackCall>& calls, protozero::pbf_writer writer) {
  const auto column = [&](protozero::pbf_tag_type field, std::uint32_t StackCall::*member) {
    protozero::packed_field_uint32 packed(writer, field);
    for (const StackCall& call : calls) packed.add_element(call.*member);
  };
  column(1, &StackCall::parent_plus_one);
  column(2, &StackCall::function);
  column(3, &StackCall::file);
  column(4, &StackCall::line);
}

void WriteUses(const std::vector<BlockUse>& uses, protozero::pbf_writer writer) {
  {
    protozero::packed_field_uint64 packed(writer, 1);
    for (const BlockUse& use : uses) packed.add_element(use.allocation);
  }
  {
    protozero::packed_field_sint64 packed(writer, 2);
    std::uint64_t before = 0;
    for (const BlockUse& use : uses) {
      packed.add_element(static_cast<std::int64_t>(use.event - before));
      before = use.event;
    }
  }
  protozero::packed_field_uint32 packed(writer, 3);
  for (const BlockUse& use : uses) packed.add_element(use.operation);
}

// Differences of any two addresses wrap.
void WriteAddresses(const std::vector<std::uint64_t>& addresses, protozero::pbf_writer* writer) {
  if (std::all_of(addresses.begin(), addresses.end(), [](std::uint64_t address) { return address == 0; })) return;
  protozero::packed_field_sint64 packed(*writer, chunk_field::kCapturedAddress);
  std::uint64_t before = 0;
  for (const std::uint64_t address : addresses) {
    packed.add_element(static_cast<std::int64_t>(address - before));
    before = address;
  }
}

void WriteColumns(const TraceChunk& chunk, protozero::pbf_writer* writer) {
  writer->add_packed_uint32(chunk_field::kKind, chunk.kind.begin(), chunk.kind.end());
  writer->add_packed_uint64(chunk_field::kSubject, chunk.subject.begin(), chunk.subject.end());
  writer->add_packed_uint64(chunk_field::kValue, chunk.value.begin(), chunk.value.end());
  writer->add_packed_uint32(chunk_field::kStream, chunk.stream.begin(), chunk.stream.end());
  writer->add_packed_uint32(chunk_field::kThread, chunk.thread.begin(), chunk.thread.end());
  writer->add_packed_sint64(chunk_field::kTimeDelta, chunk.time_delta_ns.begin(), chunk.time_delta_ns.end());
  writer->add_packed_uint32(chunk_field::kFlags, chunk.flags.begin(), chunk.flags.end());
}

}  // namespace

void TraceChunk::AppendRow(EventKind row_kind, std::uint64_t row_subject, std::uint64_t row_value,
                           std::uint32_t row_stream, std::uint32_t row_thread, std::int64_t row_time_delta_ns,
                           std::uint32_t row_flags) {
  kind.push_back(static_cast<std::uint8_t>(row_kind));
  subject.push_back(row_subject);
  value.push_back(row_value);
  stream.push_back(row_stream);
  thread.push_back(row_thread);
  time_delta_ns.push_back(row_time_delta_ns);
  flags.push_back(row_flags);
  if (!stack_plus_one.empty()) stack_plus_one.push_back(0);
}

void TraceChunk::SetStack(std::uint32_t row_stack_plus_one) {
  stack_plus_one.resize(rows());
  stack_plus_one.back() = row_stack_plus_one;
}

void TraceChunk::SetAddress(std::uint64_t address) {
  const bool captured =
      kind.back() == static_cast<std::uint8_t>(EventKind::kAlloc) && (flags.back() & kAllocCaptured) != 0;
  if (captured) captured_address.push_back(address);
}

void TraceChunk::StartNext() {
  first_event += rows();
  has_fingerprint = false;
  kind.clear();
  subject.clear();
  value.clear();
  stream.clear();
  thread.clear();
  time_delta_ns.clear();
  flags.clear();
  marks.clear();
  streams.clear();
  texts.clear();
  tensors.clear();
  stack_plus_one.clear();
  calls.clear();
  captured_address.clear();
  uses.clear();
  layer_inputs.clear();
}

std::uint64_t DeviceSubject(DeviceIndex device) { return protozero::encode_zigzag64(device); }

void AppendTraceFrame(const TraceChunk& chunk, std::string* out) {
  const std::size_t frame = BeginFrame(out);
  protozero::pbf_writer writer(*out);
  writer.add_uint32(chunk_field::kFormatVersion, kTraceFormatVersion);
  writer.add_uint64(chunk_field::kFirstEvent, chunk.first_event);
  if (chunk.has_fingerprint) {
    WriteFingerprint(chunk.fingerprint, protozero::pbf_writer(writer, chunk_field::kFingerprint));
  }
  WriteColumns(chunk, &writer);
  for (const Mark& mark : chunk.marks) WriteMark(mark, protozero::pbf_writer(writer, chunk_field::kMarks));
  for (const StreamInfo& stream : chunk.streams) {
    WriteStream(stream, protozero::pbf_writer(writer, chunk_field::kStreams));
  }
  writer.add_uint64(chunk_field::kTimeOrigin, chunk.time_origin_ns);
  writer.add_bool(chunk_field::kLast, chunk.last);
  if (chunk.live_before != 0) writer.add_uint64(chunk_field::kLiveBefore, chunk.live_before);
  for (const std::string& text : chunk.texts) writer.add_string(chunk_field::kTexts, ValidUtf8(text));
  writer.add_packed_uint32(chunk_field::kStack, chunk.stack_plus_one.begin(), chunk.stack_plus_one.end());
  WriteAddresses(chunk.captured_address, &writer);
  if (!chunk.calls.empty()) WriteCalls(chunk.calls, protozero::pbf_writer(writer, chunk_field::kCalls));
  if (!chunk.tensors.empty()) WriteTensors(chunk.tensors, protozero::pbf_writer(writer, chunk_field::kTensors));
  if (!chunk.uses.empty()) WriteUses(chunk.uses, protozero::pbf_writer(writer, chunk_field::kUses));
  if (!chunk.layer_inputs.empty()) {
    WriteUses(chunk.layer_inputs, protozero::pbf_writer(writer, chunk_field::kLayerInputs));
  }
  FinishFrame(frame, out);
}

std::string ValidUtf8(std::string text) {
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t length = SequenceLength(std::string_view(text).substr(at));
    if (length == 0) text[at] = '?';
    at += length == 0 ? 1 : length;
  }
  return text;
}

}  // namespace stalloc
