#include "planner/packing/pipeline/peak_check.h"

#include <algorithm>
#include <utility>

namespace stalloc::planner {
namespace {

constexpr std::size_t kMostPeaks = 16;
// Peaks at which so small a share of the room is idle are looked at.
constexpr Bytes kIdleShare = 64;
// More are not tried in all combinations.
constexpr std::size_t kMostShorts = 8;

bool IsAlive(const Span& span, std::uint32_t position) { return span.begin <= position && position < span.end; }

// Bytes alive at each position.
std::vector<Bytes> LoadOf(const RingWindow& window) {
  std::vector<Bytes> load(window.positions() + 1);  // differences modulo 2^64 first
  const auto add = [&](const Span& span, Bytes bytes) {
    load[span.begin] += bytes;
    load[span.end] -= bytes;
  };
  for (const RingWindow::Obstacle& obstacle : window.obstacles) add(obstacle.span, obstacle.end - obstacle.begin);
  for (const RingWindow::Piece& piece : window.longs) add(piece.span, piece.bytes);
  for (const RingWindow::Piece& piece : window.shorts) add(piece.span, piece.bytes);
  for (std::size_t i = 1; i < load.size(); ++i) load[i] += load[i - 1];
  load.pop_back();
  return load;
}

}  // namespace

PeakCheck::PeakCheck(const RingWindow& window, Bytes bottom, Bytes ceiling)
    : window_(window), bottom_(bottom), ceiling_(ceiling) {
  FindPeaks();
  for (Peak& peak : peaks_) Fill(peak);
}

void PeakCheck::FindPeaks() {
  const std::vector<Bytes> load = LoadOf(window_);
  const Bytes room = ceiling_ - bottom_;
  std::vector<std::uint32_t> positions;
  for (std::uint32_t i = 0; i < load.size(); ++i) {
    const bool rises = i == 0 || load[i - 1] < load[i];
    const bool falls = i + 1 == load.size() || load[i + 1] <= load[i];
    if (rises && falls && load[i] >= room - room / kIdleShare) positions.push_back(i);
  }
  std::stable_sort(positions.begin(), positions.end(),
                   [&](std::uint32_t a, std::uint32_t b) { return load[a] > load[b]; });
  if (positions.size() > kMostPeaks) positions.resize(kMostPeaks);
  for (const std::uint32_t position : positions) {
    peaks_.push_back({.position = position, .obstacles = {}, .longs = {}, .shorts = {}});
  }
}

void PeakCheck::Fill(Peak& peak) const {
  for (const RingWindow::Obstacle& obstacle : window_.obstacles) {
    if (IsAlive(obstacle.span, peak.position)) peak.obstacles.push_back(obstacle);
  }
  std::sort(peak.obstacles.begin(), peak.obstacles.end(),
            [](const RingWindow::Obstacle& a, const RingWindow::Obstacle& b) { return a.begin < b.begin; });
  const auto add = [&](const std::vector<RingWindow::Piece>& pieces, std::vector<std::uint32_t>& alive) {
    for (std::uint32_t i = 0; i < pieces.size(); ++i) {
      if (IsAlive(pieces[i].span, peak.position)) alive.push_back(i);
    }
  };
  add(window_.longs, peak.longs);
  add(window_.shorts, peak.shorts);
  std::stable_sort(peak.shorts.begin(), peak.shorts.end(), [this](std::uint32_t a, std::uint32_t b) {
    return window_.shorts[a].bytes > window_.shorts[b].bytes;
  });
}

bool PeakCheck::MayFit(const Revolution& revolution) {
  for (std::size_t i = 0; i < peaks_.size(); ++i) {
    if (peaks_[i].position >= revolution.finished || FitsAt(peaks_[i], revolution)) continue;
    std::rotate(peaks_.begin(), peaks_.begin() + static_cast<std::ptrdiff_t>(i),
                peaks_.begin() + static_cast<std::ptrdiff_t>(i) + 1);
    return false;
  }
  return true;
}

bool PeakCheck::FitsAt(const Peak& peak, const Revolution& revolution) {
  sizes_.clear();
  for (const std::uint32_t i : peak.shorts) {
    if (window_.shorts[i].span.end <= revolution.finished) sizes_.push_back(window_.shorts[i].bytes);
  }
  if (sizes_.size() > kMostShorts) sizes_.resize(kMostShorts);
  FindHoles(peak, revolution);
  return FitsFrom(0);
}

void PeakCheck::FindHoles(const Peak& peak, const Revolution& revolution) {
  holes_.clear();
  Offset top = bottom_;
  const auto pass = [&](Offset begin, Offset end) {
    if (begin > top) holes_.push_back(begin - top);
    top = std::max(top, end);
  };
  auto obstacle = peak.obstacles.begin();
  for (const std::uint32_t i : peak.longs) {
    const Offset begin = revolution.longs[i];
    if (begin == Revolution::kNotYet) continue;
    for (; obstacle != peak.obstacles.end() && obstacle->begin < begin; ++obstacle) {
      pass(obstacle->begin, obstacle->end);
    }
    pass(begin, begin + window_.longs[i].bytes);
  }
  for (; obstacle != peak.obstacles.end(); ++obstacle) pass(obstacle->begin, obstacle->end);
  pass(ceiling_, ceiling_);
}

// Whether sizes_[next..] fit into the holes, alignment left aside.
bool PeakCheck::FitsFrom(std::size_t next) {
  if (next == sizes_.size()) return true;
  for (std::size_t i = 0; i < holes_.size(); ++i) {
    const Bytes hole = holes_[i];
    // Of equal holes the first speaks for all.
    if (hole < sizes_[next] || std::find(holes_.begin(), holes_.begin() + static_cast<std::ptrdiff_t>(i), hole) !=
                                   holes_.begin() + static_cast<std::ptrdiff_t>(i)) {
      continue;
    }
    holes_[i] -= sizes_[next];
    const bool fits = FitsFrom(next + 1);
    holes_[i] = hole;
    if (fits) return true;
  }
  return false;
}

}  // namespace stalloc::planner
