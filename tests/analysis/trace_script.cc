#include "tests/analysis/trace_script.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <sstream>
#include <stdexcept>

namespace stalloc::planner {
namespace {

constexpr std::uint64_t kPoolAddress = std::uint64_t{0x7f} << 40;

class ScriptReader {
 public:
  Trace Read(std::string_view script) {
    std::istringstream words{std::string(script)};
    for (std::string word; words >> word;) Take(word);
    trace_.complete = true;
    trace_.fingerprint.world_size = 1;
    return std::move(trace_);
  }

 private:
  void Take(const std::string& word) {
    switch (word[0]) {
      case '+':
        return Allocate(word);
      case '-':
        return Free(word.substr(1));
      case '~':
        return Record(word);
      case '(':
        return AddMark({.kind = MarkKind::kFence, .name = word.substr(1)});
      case ')':
        return AddMark({.kind = MarkKind::kFence, .edge = MarkEdge::kEnd, .name = ""});
      case 'H':
        return AddEvent({.kind = EventKind::kHeld, .device = device_, .bytes = std::stoull(word.substr(2))});
      case 'D':
        device_ = std::stoi(word.substr(1));
        return;
      default:
        return TakeMark(word);
    }
  }

  void TakeMark(const std::string& word) {
    const bool automatic = word.back() == '?';
    if (word == "INIT") {
      AddMark({.kind = MarkKind::kInit, .name = ""});
    } else if (word[0] == 'I') {
      AddMark({.kind = MarkKind::kIteration, .index = iteration_++, .name = "", .automatic = automatic});
    } else if (word == "E") {
      AddMark({.kind = MarkKind::kIteration, .edge = MarkEdge::kEnd, .index = iteration_ - 1, .name = ""});
    } else if (word[0] == 'O') {
      const MarkEdge edge = word == "O-" ? MarkEdge::kEnd : MarkEdge::kBegin;
      AddMark({.kind = MarkKind::kOptimizer, .edge = edge, .name = "", .automatic = automatic});
    } else if (word[0] == 'F' || word[0] == 'B') {
      AddMark({.kind = MarkKind::kMicrobatch,
               .pass = word[0] == 'F' ? Pass::kForward : Pass::kBackward,
               .index = std::stoi(word.substr(1)),
               .name = ""});
    } else if (word[0] == 'C' || word[0] == 'R') {
      TakeGraph(word);
    } else if (word[0] == 'P') {
      AddMark({.kind = MarkKind::kLayer, .name = "CUDA graph pool " + word.substr(1)});
    } else if (word[0] == 'L') {
      TakeLayer(word);
    } else {
      throw std::invalid_argument("unknown token: " + word);
    }
  }

  void TakeGraph(const std::string& word) {
    const std::string what = word[0] == 'C' ? " capture" : " replay";
    Mark mark{.kind = MarkKind::kLayer, .name = "CUDA graph " + std::to_string(std::stoi(word.substr(1))) + what};
    mark.edge = word.back() == '-' ? MarkEdge::kEnd : MarkEdge::kBegin;
    AddMark(mark);
    if (word[0] == 'C') return;
    mark.edge = MarkEdge::kEnd;
    AddMark(mark);
  }

  void TakeLayer(const std::string& word) {
    const std::size_t colon = word.find(':');
    const std::string which = word.substr(0, colon);
    if (which != "L" && which != "LE" && which != "LB" && which != "LBE") {
      throw std::invalid_argument("unknown token: " + word);
    }
    const std::size_t told = word.find('<', colon);
    const std::size_t equals = word.find('=', colon);
    Mark mark{.kind = MarkKind::kLayer, .name = word.substr(colon + 1, std::min(equals, told) - colon - 1)};
    mark.edge = which.back() == 'E' ? MarkEdge::kEnd : MarkEdge::kBegin;
    mark.pass = which[1] == 'B' ? Pass::kBackward : Pass::kForward;
    if (equals != std::string::npos) {
      const std::string kept = word.substr(equals + 1, told - equals - 1);
      mark.index = kept == "none" ? -1 : 1 + std::stoi(kept) / 512;
    }
    if (told != std::string::npos) {
      const std::size_t blocks = word.find_first_not_of('<', told);
      mark.chunk = std::min(blocks, word.size()) - told == 2 ? kLayerCachesTold : kLayerInputsTold;
      if (blocks != std::string::npos) TellInputs(mark.name, word.substr(blocks));
    }
    AddMark(mark);
  }

  void TellInputs(const std::string& layer, const std::string& blocks) {
    const auto name = static_cast<std::uint32_t>(trace_.texts.size());
    trace_.texts.push_back(layer);
    std::istringstream names(blocks);
    for (std::string block; std::getline(names, block, ',');) {
      trace_.layer_inputs.push_back({live_.at(block), trace_.events.size(), name});
    }
  }

  void Allocate(const std::string& word) {
    const std::size_t equals = word.find('=');
    const std::size_t at = word.find('@');
    if (equals == std::string::npos) throw std::invalid_argument("no size: " + word);
    TraceEvent event{.kind = EventKind::kAlloc, .device = device_, .allocation = trace_.allocations++};
    event.bytes = std::stoull(word.substr(equals + 1));
    event.stream = at == std::string::npos ? 0 : static_cast<std::uint32_t>(std::stoul(word.substr(at + 1)));
    if (const std::size_t mark = word.find('!'); mark != std::string::npos) {
      const std::string pool = word.substr(mark + 1, word.find('^') - mark - 1);
      event.flags =
          kAllocCaptured | (pool.empty() ? 0u : static_cast<std::uint32_t>(std::stoul(pool)) << kAllocPoolShift);
    }
    if (const std::size_t place = word.find('^'); place != std::string::npos) {
      event.address = kPoolAddress + std::stoull(word.substr(place + 1));
    }
    if (word.back() == 'r') event.flags |= kAllocRecomputed;
    NoteStream(event.stream);
    live_[word.substr(1, equals - 1)] = event.allocation;
    AddEvent(event);
  }

  void Free(const std::string& name) {
    const auto found = live_.find(name);
    if (found == live_.end()) throw std::invalid_argument("not live: " + name);
    AddEvent({.kind = EventKind::kFree, .allocation = found->second});
    live_.erase(found);
  }

  void Record(const std::string& word) {
    const std::size_t at = word.find('@');
    const auto stream = static_cast<std::uint32_t>(std::stoul(word.substr(at + 1)));
    NoteStream(stream);
    AddEvent({.kind = EventKind::kRecordStream, .allocation = live_.at(word.substr(1, at - 1)), .stream = stream});
  }

  void NoteStream(std::uint32_t stream) {
    while (trace_.streams.size() <= stream) {
      trace_.streams.push_back(
          {static_cast<std::uint32_t>(trace_.streams.size()), device_, 0x100 * trace_.streams.size()});
    }
  }

  void AddMark(const Mark& mark) {
    AddEvent({.kind = EventKind::kMark, .mark = static_cast<std::uint32_t>(trace_.marks.size())});
    trace_.marks.push_back(mark);
  }

  void AddEvent(TraceEvent event) {
    event.time_ns = static_cast<std::int64_t>(trace_.events.size()) * 1000;
    trace_.events.push_back(event);
  }

  Trace trace_;
  std::map<std::string, std::uint64_t> live_;
  std::int32_t iteration_ = 0;
  DeviceIndex device_ = 0;
};

}  // namespace

Trace TraceFromScript(std::string_view script) { return ScriptReader().Read(script); }

std::string InBytes(std::string_view script) {
  std::string text;
  for (std::size_t i = 0; i < script.size(); ++i) {
    text += script[i];
    const std::size_t end = script.find_first_not_of("0123456789", i + 1);
    const bool is_size = script[i] == '=' || script[i] == '^';
    if (!is_size || end == i + 1 || end == std::string_view::npos || script[end] != 'M') continue;
    text += std::to_string(std::stoull(std::string(script.substr(i + 1, end - i - 1))) << 20);
    i = end;
  }
  return text;
}

std::string Repeat(std::string_view text, int count) {
  std::string result;
  for (int i = 0; i < count; ++i) result.append(text).append(" ");
  return result;
}

}  // namespace stalloc::planner
