#include "planner/cli/event_text.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"

namespace stalloc::planner {
namespace {

constexpr absl::string_view kFirstLine = "stalloc-events 1";
constexpr std::uint32_t kMostPools = (1u << (32 - kAllocPoolShift)) - 1;

constexpr std::array kMarkKinds{MarkKind::kInit,      MarkKind::kIteration, MarkKind::kMicrobatch,
                                MarkKind::kOptimizer, MarkKind::kLayer,     MarkKind::kFence};
const std::array<std::pair<absl::string_view, Pass>, 6> kPasses{{{"-", Pass::kNone},
                                                                 {"F", Pass::kForward},
                                                                 {"B", Pass::kBackward},
                                                                 {"W", Pass::kWeight},
                                                                 {"FB", Pass::kForwardBackward},
                                                                 {"O", Pass::kOther}}};

const std::array<std::pair<absl::string_view, TensorRole>, 6> kRoles{{{"-", TensorRole::kNone},
                                                                      {"parameter", TensorRole::kParameter},
                                                                      {"gradient", TensorRole::kGradient},
                                                                      {"optimizer_state", TensorRole::kOptimizerState},
                                                                      {"buffer", TensorRole::kBuffer},
                                                                      {"input", TensorRole::kInput}}};

class EventTextReader {
 public:
  absl::StatusOr<Trace> Read(std::istream& in) {
    std::string line;
    if (!std::getline(in, line) || line != kFirstLine) {
      return absl::InvalidArgumentError(absl::StrCat("line 1: expected '", kFirstLine, "', found '", line, "'"));
    }
    while (std::getline(in, line)) {
      ++line_;
      words_ = absl::StrSplit(line, ' ');
      next_ = 1;
      if (absl::Status status = TakeLine(words_[0]); !status.ok()) return status;
    }
    if (in.bad()) return absl::DataLossError(absl::StrCat("line ", line_ + 1, ": cannot be read"));
    trace_.allocations = allocations_;
    trace_.complete = true;
    return std::move(trace_);
  }

 private:
  absl::Status TakeLine(absl::string_view kind) {
    if (kind == "=") return TakeFingerprint();
    if (kind == "t") return TakeText();
    if (kind == "c") return TakeCall();
    if (kind == "n") return TakeTensor();
    if (kind == "p") return TakePool();
    TraceEvent event;
    absl::Status status;
    if (kind == "a") {
      status = TakeAllocation(&event);
    } else if (kind == "f" || kind == "r") {
      status = TakeUse(kind == "f" ? EventKind::kFree : EventKind::kRecordStream, &event);
    } else if (kind == "h") {
      event.kind = EventKind::kHeld;
      status.Update(Number("a device", &event.device));
      status.Update(Number("bytes", &event.bytes));
    } else if (kind == "m") {
      event.kind = EventKind::kMark;
      status = TakeMark(&event);
    } else {
      return Expected("=, a, c, f, r, h, m, n, p or t", kind);
    }
    if (kind != "m") status.Update(Number("a time", &event.time_ns));
    if (status.ok() && kind == "a" && next_ < words_.size()) {
      status = Number("a call", &event.stack_plus_one);
      if (status.ok() && event.stack_plus_one > trace_.calls.size()) status = Expected("a call", words_.back());
    }
    if (status.ok() && next_ < words_.size() && kind != "m") status = Expected("the end of the line", words_[next_]);
    if (!status.ok()) return status;
    if (trace_.events.empty()) origin_ns_ = event.time_ns;
    event.time_ns -= origin_ns_;
    trace_.events.push_back(event);
    return absl::OkStatus();
  }

  absl::Status TakeAllocation(TraceEvent* event) {
    std::uint64_t id = 0;
    std::uint64_t stream = 0;
    event->kind = EventKind::kAlloc;
    absl::Status status = Number("an id", &id);
    status.Update(Number("bytes", &event->bytes));
    status.Update(Number("a device", &event->device));
    status.Update(Number("a stream", &stream));
    if (!status.ok()) return status;
    if (!live_.try_emplace(id, Live{allocations_, event->device, trace_.events.size()}).second) {
      return Expected("an id that no live block has", words_[1]);
    }
    event->allocation = allocations_++;
    event->stream = StreamOf(event->device, stream);
    return absl::OkStatus();
  }

  absl::Status TakeUse(EventKind kind, TraceEvent* event) {
    std::uint64_t id = 0;
    event->kind = kind;
    if (absl::Status status = Number("an id", &id); !status.ok()) return status;
    const auto found = live_.find(id);
    if (found == live_.end()) return Expected("the id of a live block", words_[1]);
    event->allocation = found->second.allocation;
    if (kind == EventKind::kFree) {
      live_.erase(found);
      return absl::OkStatus();
    }
    std::uint64_t stream = 0;
    absl::Status status = Number("a stream", &stream);
    if (status.ok()) event->stream = StreamOf(found->second.device, stream);
    return status;
  }

  absl::Status TakeMark(TraceEvent* event) {
    Mark mark;
    const absl::string_view kind = Word();
    const auto named = std::find_if(kMarkKinds.begin(), kMarkKinds.end(),
                                    [&](MarkKind candidate) { return kind == MarkKindName(candidate); });
    if (named == kMarkKinds.end()) return Expected("a kind of mark", kind);
    mark.kind = *named;
    const absl::string_view edge = Word();
    if (edge != "begin" && edge != "end") return Expected("begin or end", edge);
    mark.edge = edge == "begin" ? MarkEdge::kBegin : MarkEdge::kEnd;
    const absl::string_view pass = Word();
    const auto found = std::find_if(kPasses.begin(), kPasses.end(), [&](const auto& p) { return p.first == pass; });
    if (found == kPasses.end()) return Expected("a pass", pass);
    mark.pass = found->second;
    absl::Status status = Number("a chunk", &mark.chunk);
    status.Update(Number("an index", &mark.index));
    status.Update(Number("a time", &event->time_ns));
    mark.name =
        absl::StrJoin(words_.begin() + static_cast<std::ptrdiff_t>(std::min(next_, words_.size())), words_.end(), " ");
    event->mark = static_cast<std::uint32_t>(trace_.marks.size());
    trace_.marks.push_back(std::move(mark));
    return status;
  }

  absl::Status TakeText() {
    trace_.texts.push_back(absl::StrJoin(words_.begin() + 1, words_.end(), " "));
    return absl::OkStatus();
  }

  absl::Status TakeCall() {
    StackCall call;
    absl::Status status = Number("a call", &call.parent_plus_one);
    status.Update(Number("a line", &call.line));
    status.Update(Number("a text", &call.file));
    status.Update(Number("a text", &call.function));
    if (!status.ok()) return status;
    if (call.parent_plus_one > trace_.calls.size()) return Expected("a call", words_[1]);
    if (std::max(call.file, call.function) >= trace_.texts.size()) return Expected("numbers of texts", words_.back());
    trace_.calls.push_back(call);
    return absl::OkStatus();
  }

  absl::Status TakeTensor() {
    std::uint64_t id = 0;
    NamedTensor tensor;
    absl::Status status = Number("an id", &id);
    status.Update(Number("an offset", &tensor.offset));
    if (!status.ok()) return status;
    const auto block = live_.find(id);
    if (block == live_.end()) return Expected("the id of a live block", words_[1]);
    tensor.allocation = block->second.allocation;
    const absl::string_view role = Word();
    const auto found = std::find_if(kRoles.begin(), kRoles.end(), [&](const auto& r) { return r.first == role; });
    if (found == kRoles.end()) return Expected("parameter, gradient, optimizer_state, buffer, input or -", role);
    tensor.role = found->second;
    status = Number("a text", &tensor.name);
    if (status.ok() && tensor.name >= trace_.texts.size()) status = Expected("the number of a text", words_.back());
    if (status.ok() && next_ < words_.size()) status = Expected("the end of the line", words_[next_]);
    if (status.ok()) trace_.tensors.push_back(tensor);
    return status;
  }

  absl::Status TakePool() {
    std::uint64_t id = 0;
    std::uint32_t pool = 0;
    std::uint64_t address = 0;
    absl::Status status = Number("an id", &id);
    status.Update(Number("a pool", &pool));
    status.Update(Number("an address", &address));
    if (!status.ok()) return status;
    const auto block = live_.find(id);
    if (block == live_.end()) return Expected("the id of a live block", words_[1]);
    if (pool == 0 || pool > kMostPools) return Expected("a pool from 1 to 16777215", words_[2]);
    if (next_ < words_.size()) return Expected("the end of the line", words_[next_]);
    TraceEvent& event = trace_.events[block->second.event];
    event.flags |= kAllocCaptured | pool << kAllocPoolShift;
    event.address = address;
    return absl::OkStatus();
  }

  absl::Status TakeFingerprint() {
    const std::string key(Word());
    Fingerprint& print = trace_.fingerprint;
    const std::map<std::string, std::string*> texts{{"torch_version", &print.torch_version},
                                                    {"device_name", &print.device_name},
                                                    {"driver_version", &print.driver_version},
                                                    {"trace_mode", &print.trace_mode}};
    const std::map<std::string, std::uint32_t*> numbers{
        {"world_size", &print.world_size}, {"rank", &print.rank}, {"local_rank", &print.local_rank}};
    if (const auto text = texts.find(key); text != texts.end()) {
      *text->second = absl::StrJoin(words_.begin() + static_cast<std::ptrdiff_t>(next_), words_.end(), " ");
      return absl::OkStatus();
    }
    if (const auto number = numbers.find(key); number != numbers.end()) return Number("a number", number->second);
    return key == "device_bytes" ? Number("bytes", &print.device_bytes) : Expected("a key of the fingerprint", key);
  }

  std::uint32_t StreamOf(DeviceIndex device, std::uint64_t handle) {
    const auto [found, is_new] =
        streams_.try_emplace({device, handle}, static_cast<std::uint32_t>(trace_.streams.size()));
    if (is_new) trace_.streams.push_back({found->second, device, handle});
    return found->second;
  }

  absl::string_view Word() { return next_ < words_.size() ? absl::string_view(words_[next_++]) : absl::string_view(); }

  template <typename Integer>
  absl::Status Number(const char* what, Integer* value) {
    const absl::string_view word = Word();
    return absl::SimpleAtoi(word, value) ? absl::OkStatus() : Expected(what, word);
  }

  [[nodiscard]] absl::Status Expected(const char* what, absl::string_view found) const {
    return absl::InvalidArgumentError(absl::StrCat("line ", line_, ": expected ", what, ", found '", found, "'"));
  }

  struct Live {
    std::uint64_t allocation = 0;
    DeviceIndex device = 0;
    std::size_t event = 0;
  };
  Trace trace_;
  absl::flat_hash_map<std::uint64_t, Live> live_;  // by id
  std::map<std::pair<DeviceIndex, std::uint64_t>, std::uint32_t> streams_;
  std::vector<std::string> words_;
  std::size_t next_ = 0;  // word
  std::uint64_t line_ = 1;
  std::uint64_t allocations_ = 0;
  std::int64_t origin_ns_ = 0;
};

}  // namespace

absl::StatusOr<Trace> ReadEventText(std::istream& in) { return EventTextReader().Read(in); }

}  // namespace stalloc::planner
