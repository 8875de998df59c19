#include "planner/packing/pipeline/revolution_placer.h"

#include <algorithm>

namespace stalloc::planner {
namespace {

// Orders in which the short blocks of a revolution are placed at most.
constexpr int kMostOrders = 8;

}  // namespace

std::optional<Revolution> RevolutionPlacer::Place(const RingWindow& window, const RingClosure& closure) {
  if (window_ != &window) Enter(window);
  std::optional<Revolution> revolution = PlaceLongs(closure);
  if (!revolution) return std::nullopt;
  revolution->finished = Finished(*revolution);
  if (!peaks_->MayFit(*revolution) || !PlaceShorts(*revolution)) return std::nullopt;
  return revolution;
}

void RevolutionPlacer::Enter(const RingWindow& window) {
  window_ = &window;
  peaks_.emplace(window, bottom_, ceiling_);
  runs_.clear();
  if (const std::uint32_t positions = window.positions(); positions > tree_positions_) {
    tree_positions_ = 2 * positions;
    earlier_.emplace(tree_positions_);
    tree_.emplace(tree_positions_);
  }
  Clear(*earlier_);
}

void RevolutionPlacer::Clear(FitTree& tree) {
  tree.Clear();
  for (const RingWindow::Obstacle& obstacle : window_->obstacles) {
    tree.Insert(obstacle.span, obstacle.begin, obstacle.end);
  }
  work_ += window_->obstacles.size();
}

Offset RevolutionPlacer::LowestFit(FitTree& tree, const RingWindow::Piece& piece, Offset base) {
  ++work_;
  return tree.LowestFit({.bytes = piece.bytes, .alignment = piece.alignment, .span = piece.span, .second = {}}, base);
}

const RevolutionPlacer::Run& RevolutionPlacer::RunFrom(Bytes shift) {
  const auto [found, is_new] = runs_.try_emplace(shift);
  Run& run = found->second;
  if (!is_new) return run;
  Offset next = bottom_ + shift;
  for (const RingWindow::Piece& piece : window_->longs) {
    const Offset offset = LowestFit(*earlier_, piece, next);
    next = offset + piece.bytes;
    if (next > ceiling_) break;
    run.push_back(offset);
  }
  return run;
}

Bytes RevolutionPlacer::BytesOf(const Run& run) const {
  Bytes bytes = 0;
  for (std::size_t i = 0; i < run.size(); ++i) bytes += window_->longs[i].bytes;
  return bytes;
}

std::optional<Revolution> RevolutionPlacer::PlaceLongs(const RingClosure& closure) {
  const Run& run = RunFrom(closure.shift);
  const bool is_last = window_->later == RingWindow::kNoPosition && run.size() == window_->longs.size();
  const std::size_t early = is_last ? 0 : closure.early;
  // A ring that begins may do so anywhere; one that goes on must get on.
  const Bytes least = window_->obstacles.empty() ? 0 : (ceiling_ - bottom_) / 2;
  if (!is_last && (run.size() <= early || BytesOf(run) < least)) return std::nullopt;
  Revolution revolution;
  revolution.longs.assign(run.begin(), run.end() - static_cast<std::ptrdiff_t>(early));
  const std::size_t turn = revolution.longs.size();
  revolution.longs.resize(window_->longs.size(), Revolution::kNotYet);
  revolution.shorts.assign(window_->shorts.size(), Revolution::kNotYet);
  if (closure.fill && !is_last) Fill(turn, revolution);
  return revolution;
}

// The block whose turn it is goes on at the bottom; some that follow it may take the rest below the ceiling.
void RevolutionPlacer::Fill(std::size_t turn, Revolution& revolution) {
  Offset from = revolution.longs[turn - 1] + window_->longs[turn - 1].bytes;
  const std::size_t end = std::min(window_->longs.size(), turn + RingWindow::kLookAhead);
  for (std::size_t i = turn + 1; i < end && from < ceiling_; ++i) {
    const RingWindow::Piece& piece = window_->longs[i];
    if (from + piece.bytes > ceiling_) continue;
    const Offset offset = LowestFit(*earlier_, piece, from);
    if (offset + piece.bytes > ceiling_) continue;
    revolution.longs[i] = offset;
    from = offset + piece.bytes;
  }
}

std::uint32_t RevolutionPlacer::Finished(const Revolution& revolution) const {
  std::uint32_t finished = window_->later;
  for (std::size_t i = 0; i < window_->longs.size(); ++i) {
    if (revolution.longs[i] == Revolution::kNotYet) finished = std::min(finished, window_->longs[i].span.begin);
  }
  return finished;
}

bool RevolutionPlacer::PlaceShorts(Revolution& revolution) {
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < window_->shorts.size(); ++i) {
    if (window_->shorts[i].span.end <= revolution.finished) order.push_back(i);
  }
  for (int round = 0; round < kMostOrders; ++round) {
    const std::size_t placed = PlaceInOrder(order, revolution);
    if (placed == order.size()) return true;
    // The one that found no room goes first.
    const auto failed = order.begin() + static_cast<std::ptrdiff_t>(placed);
    std::rotate(order.begin(), failed, failed + 1);
  }
  return false;
}

std::size_t RevolutionPlacer::PlaceInOrder(const std::vector<std::size_t>& order, Revolution& revolution) {
  Clear(*tree_);
  const auto insert = [&](const RingWindow::Piece& piece, Offset offset) {
    tree_->Insert(piece.span, offset, offset + piece.bytes);
  };
  for (std::size_t i = 0; i < window_->longs.size(); ++i) {
    if (revolution.longs[i] != Revolution::kNotYet) insert(window_->longs[i], revolution.longs[i]);
  }
  work_ += window_->longs.size();
  for (std::size_t placed = 0; placed < order.size(); ++placed) {
    const RingWindow::Piece& piece = window_->shorts[order[placed]];
    const Offset offset = LowestFit(*tree_, piece, bottom_);
    if (offset + piece.bytes > ceiling_) return placed;
    revolution.shorts[order[placed]] = offset;
    insert(piece, offset);
  }
  return order.size();
}

}  // namespace stalloc::planner
