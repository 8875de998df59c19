#include "proto/codec/plan_message.h"

#include <stdexcept>
#include <string>
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

Fingerprint ParseFingerprint(pbf_reader message) {
  Fingerprint fingerprint;
  while (message.next()) {
    switch (message.tag()) {
      case 1:
        fingerprint.torch_version = message.get_string();
        break;
      case 2:
        fingerprint.device_name = message.get_string();
        break;
      case 3:
        fingerprint.device_bytes = message.get_uint64();
        break;
      case 4:
        fingerprint.driver_version = message.get_string();
        break;
      case 5:
        fingerprint.world_size = message.get_uint32();
        break;
      case 6:
        fingerprint.rank = message.get_uint32();
        break;
      case 7:
        fingerprint.local_rank = message.get_uint32();
        break;
      case 8:
        fingerprint.command_line.push_back(message.get_string());
        break;
      case 9:
        fingerprint.stalloc_version = message.get_string();
        break;
      case 10:
        fingerprint.trace_mode = message.get_string();
        break;
      default:
        message.skip();
    }
  }
  return fingerprint;
}

Mark ParseMark(pbf_reader message) {
  std::int64_t kind = 0;
  std::int64_t edge = 0;
  std::int64_t pass = 0;
  Mark mark;
  while (message.next()) {
    switch (message.tag()) {
      case 1:
        kind = message.get_enum();
        break;
      case 2:
        edge = message.get_enum();
        break;
      case 3:
        pass = message.get_enum();
        break;
      case 4:
        mark.chunk = message.get_sint32();
        break;
      case 5:
        mark.index = message.get_sint32();
        break;
      case 6:
        mark.name = message.get_string();
        break;
      case 7:
        mark.automatic = message.get_bool();
        break;
      default:
        message.skip();
    }
  }
  mark.kind = CheckedEnum(kind, MarkKind::kInit, MarkKind::kFence, "mark kind");
  mark.edge = CheckedEnum(edge, MarkEdge::kBegin, MarkEdge::kEnd, "mark edge");
  mark.pass = CheckedEnum(pass, Pass::kNone, Pass::kOther, "pass");
  return mark;
}

// protozero itself does not look at the wire type of a packed field, and would take the eight bytes of a fixed64 for a
// length and values.
void RequirePacked(const pbf_reader& message) {
  if (message.wire_type() != protozero::pbf_wire_type::length_delimited) throw Malformed("unexpected wire type");
}

Slot ParseSlot(pbf_reader message) {
  Slot slot;
  while (message.next()) {
    switch (message.tag()) {
      case 1:
        slot.offset = message.get_uint64();
        break;
      case 2:
        slot.capacity = message.get_uint64();
        break;
      default:
        message.skip();
    }
  }
  return slot;
}

Phase ParsePhase(pbf_reader message) {
  Phase phase;
  bool marked = false;
  while (message.next()) {
    switch (message.tag()) {
      case 1:
        phase.mark = ParseMark(message.get_message());
        marked = true;
        break;
      case 2:
        phase.first_entry = message.get_uint32();
        break;
      default:
        message.skip();
    }
  }
  if (!marked) throw Malformed("a phase without a mark");
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
  while (message.next()) {
    switch (message.tag()) {
      case 1:
        edge.from_slot = message.get_uint32();
        break;
      case 2:
        edge.to_slot = message.get_uint32();
        break;
      case 3:
        edge.from_stream = message.get_uint32();
        break;
      case 4:
        edge.to_stream = message.get_uint32();
        break;
      default:
        message.skip();
    }
  }
  return edge;
}

StreamInfo ParseStream(pbf_reader message) {
  StreamInfo stream;
  while (message.next()) {
    switch (message.tag()) {
      case 1:
        stream.ordinal = message.get_uint32();
        break;
      case 2:
        stream.device = message.get_sint32();
        break;
      case 3:
        stream.handle = message.get_uint64();
        break;
      default:
        message.skip();
    }
  }
  return stream;
}

Predicted ParsePredicted(pbf_reader message) {
  Predicted predicted;
  while (message.next()) {
    switch (message.tag()) {
      case 1:
        predicted.peak_live_bytes = message.get_uint64();
        break;
      case 2:
        predicted.planned_peak_bytes = message.get_uint64();
        break;
      case 3:
        predicted.upstream_peak_bytes = message.get_uint64();
        break;
      case 4:
        predicted.lower_bound_bytes = message.get_uint64();
        break;
      case 5:
        predicted.efficiency = message.get_double();
        break;
      case 6:
        predicted.expandable_bytes = message.get_uint64();
        break;
      default:
        message.skip();
    }
  }
  return predicted;
}

LentPool ParseLentPool(pbf_reader message) {
  LentPool pool;
  while (message.next()) {
    switch (message.tag()) {
      case 1:
        pool.number = message.get_uint32();
        break;
      case 2:
        pool.requests = message.get_uint32();
        break;
      case 3:
        pool.layout = message.get_fixed64();
        break;
      case 4:
        pool.bytes = message.get_uint64();
        break;
      default:
        message.skip();
    }
  }
  return pool;
}

DevicePlan ParseDevice(pbf_reader message) {
  DevicePlan device;
  while (message.next()) {
    switch (message.tag()) {
      case 1:
        device.device = message.get_sint32();
        break;
      case 2:
        device.arena_bytes = message.get_uint64();
        break;
      case 3:
        device.slots.push_back(ParseSlot(message.get_message()));
        break;
      case 4:
        device.prologue.push_back(ParseScript(message.get_message()));
        break;
      case 5:
        device.cycle.push_back(ParseScript(message.get_message()));
        break;
      case 6:
        device.stream_edges.push_back(ParseEdge(message.get_message()));
        break;
      case 7:
        device.streams.push_back(ParseStream(message.get_message()));
        break;
      case 8:
        device.predicted = ParsePredicted(message.get_message());
        break;
      case 10:
        device.kept = ParseScript(message.get_message());
        break;
      case 11:
        device.turns = message.get_uint32();
        break;
      case 12:
        device.lent_pools.push_back(ParseLentPool(message.get_message()));
        break;
      case 13:
        device.lent_slots.push_back(ParseSlot(message.get_message()));
        break;
      default:
        message.skip();
    }
  }
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
  while (message.next()) {
    switch (message.tag()) {
      case 2:
        plan.fingerprint = ParseFingerprint(message.get_message());
        break;
      case 3:
        plan.devices.push_back(ParseDevice(message.get_message()));
        break;
      case 4:
        plan.planner_version = message.get_string();
        break;
      case 5:
        plan.solver = message.get_string();
        break;
      default:
        message.skip();
    }
  }
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
