#include "proto/codec/plan_message.h"

#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "proto/codec/frame.h"
#include "proto/codec/protozero.h"

namespace stalloc {
namespace {

using protozero::pbf_reader;
using std::to_string;

// Thrown and caught in this file only: protozero's own errors are exceptions, so one way out serves both.
struct Malformed : std::runtime_error {
  using std::runtime_error::runtime_error;
};

template <typename Enum>
Enum CheckedEnum(std::int64_t value, Enum first, Enum last, const char* what) {
  if (value < static_cast<std::int64_t>(first) || value > static_cast<std::int64_t>(last)) {
    throw Malformed(std::string("unknown ") + what + " " + to_string(value));
  }
  return static_cast<Enum>(value);
}

// Numbers that the format writes in another way than those of their type.
struct Fixed64 {
  std::uint64_t value = 0;
};
struct EnumNumber {
  std::int64_t value = 0;
};

// protozero itself does not look at the wire type of a packed field, and would take the eight bytes of a fixed64 for a
// length and values.
void RequirePacked(const pbf_reader& message) {
  if (message.wire_type() != protozero::pbf_wire_type::length_delimited) throw Malformed("unexpected wire type");
}

void Read(pbf_reader& field, std::uint32_t& value) { value = field.get_uint32(); }
void Read(pbf_reader& field, std::uint64_t& value) { value = field.get_uint64(); }
void Read(pbf_reader& field, std::int32_t& value) { value = field.get_sint32(); }
void Read(pbf_reader& field, double& value) { value = field.get_double(); }
void Read(pbf_reader& field, bool& value) { value = field.get_bool(); }
void Read(pbf_reader& field, std::string& value) { value = field.get_string(); }
void Read(pbf_reader& field, std::vector<std::string>& values) { values.push_back(field.get_string()); }
void Read(pbf_reader& field, std::vector<std::uint32_t>& values) {
  RequirePacked(field);
  for (const std::uint32_t value : field.get_packed_uint32()) values.push_back(value);
}
void Read(pbf_reader& field, Fixed64& number) { number.value = field.get_fixed64(); }
void Read(pbf_reader& field, EnumNumber& number) { number.value = field.get_enum(); }

template <typename Message>
using Parser = Message (*)(pbf_reader);

template <typename Message>
void Read(pbf_reader& field, Message& value, Parser<Message> parse) {
  value = parse(field.get_message());
}
template <typename Message>
void Read(pbf_reader& field, std::vector<Message>& values, Parser<Message> parse) {
  values.push_back(parse(field.get_message()));
}

// The field with this number, and where its value goes; of a message, also what parses it.
template <typename Value, typename... Parse>
struct Field {
  Field(protozero::pbf_tag_type number, Value& target, Parse... parse_message)
      : tag(number), value(target), parse(parse_message...) {}

  [[nodiscard]] bool Take(pbf_reader& message) const {
    if (message.tag() != tag) return false;
    std::apply([&](Parse... parse_message) { Read(message, value, parse_message...); }, parse);
    return true;
  }

  protozero::pbf_tag_type tag;
  Value& value;
  std::tuple<Parse...> parse;
};

// A field that is none of these is skipped.
void ReadFields(pbf_reader message, const auto&... fields) {
  while (message.next()) {
    if (!(fields.Take(message) || ...)) message.skip();
  }
}

Fingerprint ParseFingerprint(pbf_reader message) {
  Fingerprint fingerprint;
  ReadFields(message, Field(1, fingerprint.torch_version), Field(2, fingerprint.device_name),
             Field(3, fingerprint.device_bytes), Field(4, fingerprint.driver_version), Field(5, fingerprint.world_size),
             Field(6, fingerprint.rank), Field(7, fingerprint.local_rank), Field(8, fingerprint.command_line),
             Field(9, fingerprint.stalloc_version), Field(10, fingerprint.trace_mode));
  return fingerprint;
}

Mark ParseMark(pbf_reader message) {
  EnumNumber kind;
  EnumNumber edge;
  EnumNumber pass;
  Mark mark;
  ReadFields(message, Field(1, kind), Field(2, edge), Field(3, pass), Field(4, mark.chunk), Field(5, mark.index),
             Field(6, mark.name), Field(7, mark.automatic));
  mark.kind = CheckedEnum(kind.value, MarkKind::kInit, MarkKind::kFence, "mark kind");
  mark.edge = CheckedEnum(edge.value, MarkEdge::kBegin, MarkEdge::kEnd, "mark edge");
  mark.pass = CheckedEnum(pass.value, Pass::kNone, Pass::kOther, "pass");
  return mark;
}

Slot ParseSlot(pbf_reader message) {
  Slot slot;
  ReadFields(message, Field(1, slot.offset), Field(2, slot.capacity));
  return slot;
}

Phase ParsePhase(pbf_reader message) {
  Phase phase;
  std::vector<Mark> marks;  // the last one counts
  ReadFields(message, Field(1, marks, ParseMark), Field(2, phase.first_entry));
  if (marks.empty()) throw Malformed("a phase without a mark");
  phase.mark = std::move(marks.back());
  return phase;
}

// One of several columns of equal length: hands each value to `set` with the row it belongs to.
template <typename Range, typename Row, typename Set>
void ReadColumn(const Range& values, const char* name, std::vector<Row>* rows, const Set& set) {
  const auto length = static_cast<std::size_t>(values.size());
  if (length != rows->size()) {
    throw Malformed(std::string("column ") + name + ": expected " + to_string(rows->size()) + " values, found " +
                    to_string(length));
  }
  auto row = rows->begin();
  for (const auto value : values) set(*row++, value);
}

std::size_t CountPacked(pbf_reader message, protozero::pbf_tag_type tag) {
  std::size_t count = 0;
  while (message.next()) {
    if (message.tag() == tag) {
      RequirePacked(message);
      count = static_cast<std::size_t>(message.get_packed_uint64().size());
    } else {
      message.skip();
    }
  }
  return count;
}

constexpr protozero::pbf_tag_type kLentColumn = 10;  // may be absent

// The column that `message` stands at.
void ParseColumn(pbf_reader* message, std::vector<Entry>* entries) {
  RequirePacked(*message);
  switch (message->tag()) {
    case 2:
      return ReadColumn(message->get_packed_uint64(), "bytes", entries, [](Entry& e, Bytes v) { e.bytes = v; });
    case 3:
      return ReadColumn(message->get_packed_uint32(), "stream", entries,
                        [](Entry& e, std::uint32_t v) { e.stream = v; });
    case 4:  // slot + 1; zero wraps to kNoSlot
      return ReadColumn(message->get_packed_uint32(), "slot_plus_one", entries,
                        [](Entry& e, std::uint32_t v) { e.slot = v - 1; });
    case 5:
      return ReadColumn(message->get_packed_enum(), "entry_class", entries, [](Entry& e, std::int32_t v) {
        e.entry_class = CheckedEnum(v, EntryClass::kStatic, EntryClass::kPersistent, "entry class");
      });
    case 6:
      return ReadColumn(message->get_packed_uint64(), "max_bytes", entries, [](Entry& e, Bytes v) { e.max_bytes = v; });
    case 7:
      return ReadColumn(message->get_packed_uint64(), "min_bytes", entries, [](Entry& e, Bytes v) { e.min_bytes = v; });
    case kLentColumn:  // as slot_plus_one
      return ReadColumn(message->get_packed_uint32(), "lent_plus_one", entries,
                        [](Entry& e, std::uint32_t v) { e.lent_slot = v - 1; });
    default:
      return ReadColumn(message->get_packed_uint64(), "expected_life", entries,
                        [](Entry& e, std::uint64_t v) { e.expected_life = v; });
  }
}

Script ParseScript(pbf_reader message) {
  constexpr protozero::pbf_tag_type kFirstColumn = 2;
  constexpr protozero::pbf_tag_type kLastColumn = 8;
  Script script;
  script.entries.resize(CountPacked(message, kFirstColumn));
  unsigned columns = 0;  // bits of the fields seen
  while (message.next()) {
    const protozero::pbf_tag_type tag = message.tag();
    if (tag >= kFirstColumn && tag <= kLastColumn) {
      columns |= 1u << tag;
      ParseColumn(&message, &script.entries);
    } else if (tag == kLentColumn) {
      ParseColumn(&message, &script.entries);
    } else if (tag == 1) {
      script.phases.push_back(ParsePhase(message.get_message()));
    } else {
      message.skip();
    }
  }
  constexpr unsigned kAll = (2u << kLastColumn) - (1u << kFirstColumn);
  if (!script.entries.empty() && columns != kAll) throw Malformed("a script lacks one of its columns");
  return script;
}

StreamEdge ParseEdge(pbf_reader message) {
  StreamEdge edge;
  ReadFields(message, Field(1, edge.from_slot), Field(2, edge.to_slot), Field(3, edge.from_stream),
             Field(4, edge.to_stream));
  return edge;
}

StreamInfo ParseStream(pbf_reader message) {
  StreamInfo stream;
  ReadFields(message, Field(1, stream.ordinal), Field(2, stream.device), Field(3, stream.handle));
  return stream;
}

Predicted ParsePredicted(pbf_reader message) {
  Predicted predicted;
  ReadFields(message, Field(1, predicted.peak_live_bytes), Field(2, predicted.planned_peak_bytes),
             Field(3, predicted.upstream_peak_bytes), Field(4, predicted.lower_bound_bytes),
             Field(5, predicted.efficiency), Field(6, predicted.expandable_bytes));
  return predicted;
}

LentPool ParseLentPool(pbf_reader message) {
  LentPool pool;
  Fixed64 layout;
  ReadFields(message, Field(1, pool.number), Field(2, pool.requests), Field(3, layout), Field(4, pool.bytes),
             Field(5, pool.first_pieces), Field(6, pool.own, ParseSlot));
  pool.layout = layout.value;
  return pool;
}

DevicePlan ParseDevice(pbf_reader message) {
  DevicePlan device;
  ReadFields(message, Field(1, device.device), Field(2, device.arena_bytes), Field(3, device.slots, ParseSlot),
             Field(4, device.prologue, ParseScript), Field(5, device.cycle, ParseScript),
             Field(6, device.stream_edges, ParseEdge), Field(7, device.streams, ParseStream),
             Field(8, device.predicted, ParsePredicted), Field(10, device.kept, ParseScript), Field(11, device.turns),
             Field(12, device.lent_pools, ParseLentPool), Field(13, device.lent_slots, ParseSlot));
  return device;
}

// The version stands apart: a plan of another version may not parse any further.
std::uint32_t FormatVersion(pbf_reader message) {
  std::uint32_t version = 0;
  while (message.next(1)) version = message.get_uint32();
  return version;
}

Plan ParseMessage(pbf_reader message) {
  Plan plan;
  ReadFields(message, Field(2, plan.fingerprint, ParseFingerprint), Field(3, plan.devices, ParseDevice),
             Field(4, plan.planner_version), Field(5, plan.solver));
  return plan;
}

}  // namespace

Result<Plan> ParsePlanMessage(std::string_view payload) {
  try {
    const pbf_reader message(payload.data(), payload.size());
    const std::uint32_t version = FormatVersion(message);
    if (version != kPlanFormatVersion) {
      return Error{"plan of format version " + to_string(version) + "; this library reads version " +
                   to_string(kPlanFormatVersion) + ": make the plan again with the planner of this version"};
    }
    return ParseMessage(message);
  } catch (const Malformed& malformed) {
    return Error{std::string("malformed plan: ") + malformed.what()};
  } catch (const ProtozeroAssertion& assertion) {
    return Error{std::string("malformed plan: ") + assertion.what()};
  } catch (const protozero::exception& exception) {
    return Error{std::string("malformed plan: ") + exception.what()};
  }
}

}  // namespace stalloc
