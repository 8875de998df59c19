#include "planner/cli/trace_text.h"

#include "absl/strings/str_cat.h"
#include "planner/report/json_writer.h"
#include "proto/model/pass_name.h"

namespace stalloc::planner {
namespace {

// As `import` reads it: unlike PassName it distinguishes other passes from none.
const char* PassCode(Pass pass) {
  if (pass == Pass::kNone) return "-";
  return pass == Pass::kOther ? "O" : PassName(pass);
}

void WriteMark(const Mark& mark, JsonWriter* json) {
  json->Key("event").Value("mark").Key("kind").Value(MarkKindName(mark.kind));
  json->Key("edge").Value(mark.edge == MarkEdge::kBegin ? "begin" : "end");
  json->Key("pass").Value(PassCode(mark.pass)).Key("chunk").Value(mark.chunk).Key("index").Value(mark.index);
  json->Key("name").Value(mark.name).Key("automatic").Value(mark.automatic);
}

}  // namespace

std::string MarkText(const Mark& mark) {
  const bool begin = mark.edge == MarkEdge::kBegin;
  const char* edge = begin ? "start" : "end";
  const std::string by = mark.automatic ? " (automatic)" : "";
  switch (mark.kind) {
    case MarkKind::kIteration:
      return begin ? absl::StrCat("Iteration Index : ", mark.index, by)
                   : absl::StrCat("Iteration End : ", mark.index, by);
    case MarkKind::kMicrobatch:
      return absl::StrCat("micro-batch : ", PassCode(mark.pass), begin ? "" : "-end", " chunk ", mark.chunk, " index ",
                          mark.index, by);
    case MarkKind::kLayer:
      return absl::StrCat(mark.name, " Layer : ", PassCode(mark.pass), "-", edge, by);
    case MarkKind::kOptimizer:
      return absl::StrCat("Optimizer : ", edge, by);
    case MarkKind::kInit:
      return absl::StrCat("Init : ", edge, by);
    case MarkKind::kFence:
      return absl::StrCat("Fence ", mark.name, " : ", edge, by);
  }
  return "?";
}

std::string TraceTextWriter::NewCalls(const Trace& trace) {
  std::string lines;
  if (format_ != Format::kJson) return lines;
  for (; calls_ < trace.calls.size(); ++calls_) {
    const StackCall& call = trace.calls[calls_];
    JsonWriter json(JsonWriter::Style::kLine);
    json.BeginObject().Key("event").Value("call").Key("id").Value(calls_ + 1).Key("parent").Value(call.parent_plus_one);
    json.Key("file").Value(trace.texts[call.file]).Key("line").Value(call.line);
    json.Key("function").Value(trace.texts[call.function]).EndObject();
    lines += json.Take();
  }
  return lines;
}

std::string TraceTextWriter::Line(const TraceEvent& event, const std::vector<Mark>& marks) {
  if (event.kind == EventKind::kAlloc) {
    blocks_.push_back({event.bytes, event.stream, event.device});
  }
  return format_ == Format::kJson ? JsonLine(event, marks) : TextLine(event, marks);
}

std::string TraceTextWriter::TextLine(const TraceEvent& event, const std::vector<Mark>& marks) {
  if (event.kind == EventKind::kMark) {
    return absl::StrCat(MarkText(marks[event.mark]), "\n");
  }
  if (event.kind == EventKind::kHeld) {
    return absl::StrCat("3 ", event.device, " ", event.bytes, "\n");
  }
  const Block& block = blocks_[event.allocation];
  std::string line;
  if (block.device != device_) {
    device_ = block.device;
    line = absl::StrCat("# device ", device_, "\n");
  }
  const char* kind = event.kind == EventKind::kAlloc ? "1" : event.kind == EventKind::kFree ? "0" : "2";
  const std::uint32_t stream = event.kind == EventKind::kRecordStream ? event.stream : block.stream;
  return absl::StrCat(line, kind, " ", event.allocation, " ", block.bytes, " ", stream, "\n");
}

std::string TraceTextWriter::JsonLine(const TraceEvent& event, const std::vector<Mark>& marks) const {
  JsonWriter json(JsonWriter::Style::kLine);
  json.BeginObject().Key("time_ns").Value(event.time_ns).Key("thread").Value(event.thread);
  if (event.kind == EventKind::kMark) {
    WriteMark(marks[event.mark], &json);
  } else if (event.kind == EventKind::kHeld) {
    json.Key("event").Value("held").Key("device").Value(event.device).Key("bytes").Value(event.bytes);
  } else {
    const Block& block = blocks_[event.allocation];
    const bool is_record = event.kind == EventKind::kRecordStream;
    json.Key("event").Value(event.kind == EventKind::kAlloc ? "alloc" : is_record ? "record_stream" : "free");
    json.Key("id").Value(event.allocation).Key("device").Value(block.device).Key("bytes").Value(block.bytes);
    json.Key("stream").Value(is_record ? event.stream : block.stream);
    if (event.kind == EventKind::kAlloc) {
      json.Key("captured").Value((event.flags & kAllocCaptured) != 0);
      if (PoolPlusOne(event.flags) != 0) json.Key("pool").Value(PoolPlusOne(event.flags));
      if (event.address != 0) json.Key("address").Value(event.address);
      if (event.stack_plus_one != 0) json.Key("stack").Value(event.stack_plus_one);
    }
  }
  json.EndObject();
  return json.Take();
}

}  // namespace stalloc::planner
