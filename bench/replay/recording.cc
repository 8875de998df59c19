#include "bench/replay/recording.h"

#include <algorithm>
#include <cstddef>
#include <exception>
#include <filesystem>
#include <map>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "bench/replay/edits.h"
#include "planner/analysis/segments.h"
#include "planner/synth/generator.h"
#include "planner/synth/options.h"
#include "proto/codec/trace_reader.h"
#include "tests/analysis/corpus.h"

namespace stalloc::bench {
namespace {

DeviceIndex BusiestDevice(const Trace& trace) {
  std::map<DeviceIndex, Bytes> requested;
  for (const TraceEvent& event : trace.events) {
    if (event.kind == EventKind::kAlloc) requested[event.device] += event.bytes;
  }
  const auto most = std::max_element(requested.begin(), requested.end(),
                                     [](const auto& left, const auto& right) { return left.second < right.second; });
  return most->first;
}

// Where an allocation of the trace went.
struct Home {
  std::size_t piece = 0;  // 0: the set-up
  std::uint32_t block = 0;
  bool here = false;  // on this device, and alive
};

class Cutter {
 public:
  Cutter(const Trace& trace, DeviceIndex device) : trace_(trace), device_(device), homes_(trace.allocations) {}

  std::vector<Piece> Cut() {
    const planner::Segmentation segmentation = planner::CutAtMarks(trace_);
    pieces_.resize(segmentation.segments.size());
    for (piece_ = 0; piece_ < pieces_.size(); ++piece_) {
      const planner::Segment& segment = segmentation.segments[piece_];
      for (std::uint64_t i = segment.begin_event; i < segment.end_event; ++i) Take(trace_.events[i]);
    }
    DropExitFrees();
    CompleteLastPiece();
    return std::move(pieces_);
  }

 private:
  void Take(const TraceEvent& event) {
    switch (event.kind) {
      case EventKind::kAlloc:
        return Allocate(event);
      case EventKind::kFree:
        return Free(event);
      case EventKind::kRecordStream:
        if (Home& home = homes_[event.allocation]; home.here && home.piece == piece_) {
          Now().steps.push_back({StepKind::kUse, home.block, event.stream});
        }
        return;
      case EventKind::kMark:
        if (trace_.marks[event.mark].kind != MarkKind::kIteration) {
          Now().steps.push_back({StepKind::kMark, event.mark});
        }
        return;
      case EventKind::kHeld:
        return;
    }
  }

  void Allocate(const TraceEvent& event) {
    if (event.device != device_) return;
    const auto block = static_cast<std::uint32_t>(Now().blocks.size());
    Now().blocks.push_back({event.bytes, event.stream, event.flags});
    Now().steps.push_back({StepKind::kAllocate, block});
    homes_[event.allocation] = {piece_, block, true};
  }

  void Free(const TraceEvent& event) {
    Home& home = homes_[event.allocation];
    if (!std::exchange(home.here, false)) return;
    if (home.piece == piece_) {
      Now().steps.push_back({StepKind::kFree, home.block});
      return;
    }
    pieces_[home.piece].late_frees.push_back(
        {home.block, static_cast<std::uint32_t>(piece_ - home.piece), static_cast<std::uint32_t>(Now().blocks.size())});
  }

  // At the end of the process everything is freed: as good as never. What the iteration before left may go there, too.
  void DropExitFrees() {
    const std::size_t last = pieces_.size() - 1;
    for (std::size_t piece = 0; piece < last; ++piece) {
      std::erase_if(pieces_[piece].late_frees, [&](const LateFree& late) {
        return late.pieces_later > 1 && piece + late.pieces_later == last &&
               late.before_request == pieces_[last].blocks.size();
      });
    }
  }

  void CompleteLastPiece() {
    if (pieces_.size() < 3) return;
    Piece& last = pieces_.back();
    const Piece& before = pieces_[pieces_.size() - 2];
    std::multimap<Bytes, LateFree> examples;
    for (const LateFree& late : before.late_frees) examples.emplace(before.blocks[late.block].requested, late);
    std::vector<bool> freed(last.blocks.size());
    for (const Step& step : last.steps) {
      if (step.kind == StepKind::kFree) freed[step.index] = true;
    }
    for (std::uint32_t block = 0; block < last.blocks.size(); ++block) {
      const auto example = examples.find(last.blocks[block].requested);
      if (freed[block] || example == examples.end()) continue;
      last.late_frees.push_back({block, example->second.pieces_later, example->second.before_request});
      examples.erase(example);
    }
  }

  Piece& Now() { return pieces_[piece_]; }

  const Trace& trace_;
  const DeviceIndex device_;
  std::vector<Home> homes_;  // by allocation of the trace
  std::vector<Piece> pieces_;
  std::size_t piece_ = 0;
};

constexpr absl::string_view kSynthetic = "synth/";

// "gpt_moe16" of ".../gpt_moe16.txt.gz"
std::string NameOf(const std::string& path) {
  if (absl::StartsWith(path, kSynthetic)) return path;
  const std::string file = std::filesystem::path(path).filename().string();
  return file.substr(0, file.find('.'));
}

absl::StatusOr<Trace> SynthesizePreset(const std::string& preset) {
  absl::StatusOr<planner::SynthOptions> options = planner::FindSynthPreset(preset);
  if (!options.ok()) return options.status();
  options->state = planner::ModelState::kFull;
  options->iterations = 4;
  options->micro_batches = 8;
  return planner::Synthesize(*options);
}

absl::StatusOr<Trace> ReadAnyTrace(const std::string& path, bool corpus) {
  if (absl::StartsWith(path, kSynthetic)) return SynthesizePreset(path.substr(kSynthetic.size()));
  if (!corpus) return ReadTrace(path);
  try {
    return planner::ReadCorpusFile(path);
  } catch (const std::exception& failure) {
    return absl::NotFoundError(failure.what());
  }
}

}  // namespace

absl::StatusOr<Recording> CutRecording(const Trace& trace, const std::string& name) {
  if (trace.allocations == 0) return absl::InvalidArgumentError(absl::StrCat(name, ": the trace has no allocation"));
  Recording recording{.name = name, .device = BusiestDevice(trace), .streams = trace.streams, .marks = trace.marks};
  std::vector<Piece> pieces = Cutter(trace, recording.device).Cut();
  if (pieces.size() < 3) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, ": expected at least two iterations, found ", pieces.size() - 1));
  }
  for (const Mark& mark : trace.marks) {
    if (mark.kind == MarkKind::kIteration) recording.automatic = mark.automatic;
  }
  recording.set_up = std::move(pieces.front());
  recording.iterations.assign(std::make_move_iterator(pieces.begin() + 1), std::make_move_iterator(pieces.end()));
  return recording;
}

absl::StatusOr<Recording> ReadRecording(const std::string& path) {
  const bool corpus = absl::EndsWith(path, ".txt.gz");
  const absl::StatusOr<Trace> trace = ReadAnyTrace(path, corpus);
  if (!trace.ok()) return trace.status();
  absl::StatusOr<Recording> recording = CutRecording(*trace, NameOf(path));
  if (recording.ok() && corpus) FenceEvaluations(&*recording);
  return recording;
}

}  // namespace stalloc::bench
