#include "bench/replay/edits.h"

#include <algorithm>
#include <cstddef>
#include <random>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace stalloc::bench {
namespace {

constexpr double kEvaluationShare = 1.1;
// Requests at an iteration's beginning that show where a forward pass begins.
constexpr std::size_t kBeginning = 4;

// Requests, counted from the end, that iterations [1, n) have in common in size and stream.
std::size_t CommonTail(const std::vector<Piece>& iterations) {
  const auto same = [&](std::size_t from_end) {
    const Block& model = iterations[1].blocks.end()[-1 - static_cast<std::ptrdiff_t>(from_end)];
    return std::all_of(iterations.begin() + 1, iterations.end(), [&](const Piece& piece) {
      if (from_end >= piece.blocks.size()) return false;
      const Block& block = piece.blocks.end()[-1 - static_cast<std::ptrdiff_t>(from_end)];
      return BlockBytes(block.requested) == BlockBytes(model.requested) && block.stream == model.stream;
    });
  };
  std::size_t length = 0;
  while (length < iterations[1].blocks.size() && same(length)) ++length;
  return length;
}

std::vector<bool> FreedBlocks(const Piece& piece) {
  std::vector<bool> freed(piece.blocks.size());
  for (const Step& step : piece.steps) {
    if (step.kind == StepKind::kFree) freed[step.index] = true;
  }
  for (const LateFree& late : piece.late_frees) freed[late.block] = true;
  return freed;
}

// Drops blocks with all their steps, and numbers those that stay anew.
void DropBlocks(const std::vector<bool>& dropped, Piece* piece) {
  std::vector<std::uint32_t> number(piece->blocks.size());
  Piece kept;
  for (std::uint32_t i = 0; i < piece->blocks.size(); ++i) {
    number[i] = static_cast<std::uint32_t>(kept.blocks.size());
    if (!dropped[i]) kept.blocks.push_back(piece->blocks[i]);
  }
  for (Step step : piece->steps) {
    if (step.kind != StepKind::kMark) {
      if (dropped[step.index]) continue;
      step.index = number[step.index];
    }
    kept.steps.push_back(step);
  }
  for (LateFree late : piece->late_frees) {
    if (dropped[late.block]) continue;
    late.block = number[late.block];
    kept.late_frees.push_back(late);
  }
  *piece = std::move(kept);
}

// The step in front of which the request with this number comes.
std::size_t StepOfRequest(const Piece& piece, std::size_t request) {
  const auto found = std::find_if(piece.steps.begin(), piece.steps.end(), [&](const Step& step) {
    return step.kind == StepKind::kAllocate && step.index == request;
  });
  return static_cast<std::size_t>(found - piece.steps.begin());
}

std::size_t EvaluationBegin(const Piece& piece, std::size_t usual) {
  const auto beginning = piece.blocks.begin();
  const auto from = beginning + static_cast<std::ptrdiff_t>(usual / 2);
  const auto again = std::search(from, piece.blocks.end(), beginning, beginning + kBeginning,
                                 [](const Block& a, const Block& b) { return a.requested == b.requested; });
  return static_cast<std::size_t>(again - beginning);
}

// Where a block begins and ends in the steps of its piece.
struct Life {
  std::uint32_t block = 0;
  std::size_t begin = 0;
  std::size_t end = 0;
};

std::vector<Life> LivesInside(const Piece& piece) {
  std::vector<std::size_t> begin(piece.blocks.size());
  std::vector<Life> lives;
  for (std::size_t i = 0; i < piece.steps.size(); ++i) {
    const Step& step = piece.steps[i];
    if (step.kind == StepKind::kAllocate) begin[step.index] = i;
    if (step.kind == StepKind::kFree) lives.push_back({step.index, begin[step.index], i});
  }
  std::sort(lives.begin(), lives.end(), [](const Life& a, const Life& b) { return a.block < b.block; });
  return lives;
}

struct Insertion {
  std::size_t before_step = 0;
  StepKind kind = StepKind::kAllocate;
  std::uint32_t block = 0;  // of the copies
};

// The piece with steps put in; blocks are numbered by their requests again.
void Insert(std::vector<Insertion> insertions, const std::vector<Block>& copies, Piece* piece) {
  std::stable_sort(insertions.begin(), insertions.end(),
                   [](const Insertion& a, const Insertion& b) { return a.before_step < b.before_step; });
  std::vector<std::uint32_t> number(piece->blocks.size());
  std::vector<std::uint32_t> copy_number(copies.size());
  Piece result;
  const auto put = [&](Step step, const Block& block, std::uint32_t* renumbered) {
    if (step.kind == StepKind::kAllocate) {
      *renumbered = static_cast<std::uint32_t>(result.blocks.size());
      result.blocks.push_back(block);
    }
    step.index = *renumbered;
    result.steps.push_back(step);
  };
  auto next = insertions.begin();
  for (std::size_t i = 0; i <= piece->steps.size(); ++i) {
    for (; next != insertions.end() && next->before_step == i; ++next) {
      put({next->kind, 0}, copies[next->block], &copy_number[next->block]);
    }
    if (i == piece->steps.size()) break;
    const Step& step = piece->steps[i];
    if (step.kind == StepKind::kMark) {
      result.steps.push_back(step);
    } else {
      put(step, piece->blocks[step.index], &number[step.index]);
    }
  }
  for (LateFree late : piece->late_frees) {
    late.block = number[late.block];
    result.late_frees.push_back(late);
  }
  *piece = std::move(result);
}

}  // namespace

absl::Status CutCommonTail(Recording* recording) {
  std::vector<Piece>& iterations = recording->iterations;
  const std::size_t tail = iterations.size() < 3 ? 0 : CommonTail(iterations);
  if (tail == 0) {
    return absl::FailedPreconditionError(absl::StrCat(
        recording->name, ": no tail to cut: expected three iterations or more of which all but the first end alike"));
  }
  // The first iteration's tail has more requests than the others' (it sets up state), but begins where theirs does.
  const std::size_t first_begin = iterations[1].blocks.size() - tail;
  for (std::size_t i = 0; i < iterations.size(); ++i) {
    Piece& piece = iterations[i];
    const std::size_t begin = i == 0 ? first_begin : piece.blocks.size() - tail;
    std::vector<bool> dropped = FreedBlocks(piece);
    std::fill_n(dropped.begin(), std::min(begin, dropped.size()), false);
    DropBlocks(dropped, &piece);
  }
  return absl::OkStatus();
}

void FenceEvaluations(Recording* recording) {
  std::size_t usual = SIZE_MAX;
  for (const Piece& piece : recording->iterations) usual = std::min(usual, piece.blocks.size());
  const auto mark = static_cast<std::uint32_t>(recording->marks.size());
  bool found = false;
  for (Piece& piece : recording->iterations) {
    if (usual < 2 * kBeginning ||
        static_cast<double>(piece.blocks.size()) < kEvaluationShare * static_cast<double>(usual)) {
      continue;
    }
    const std::size_t begin = EvaluationBegin(piece, usual);
    if (begin >= piece.blocks.size()) continue;
    found = true;
    piece.steps.insert(piece.steps.begin() + static_cast<std::ptrdiff_t>(StepOfRequest(piece, begin)),
                       {StepKind::kMark, mark});
    piece.steps.push_back({StepKind::kMark, mark + 1});
  }
  if (!found) return;
  recording->marks.push_back({.kind = MarkKind::kFence, .edge = MarkEdge::kBegin, .name = "eval"});
  recording->marks.push_back({.kind = MarkKind::kFence, .edge = MarkEdge::kEnd, .name = "eval"});
}

void Scale(Recording* recording, std::uint32_t factor) {
  const auto scale = [&](Piece& piece) {
    for (Block& block : piece.blocks) block.requested *= factor;
  };
  scale(recording->set_up);
  std::for_each(recording->iterations.begin(), recording->iterations.end(), scale);
}

void InsertAndDrop(Piece* piece, double share, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  const std::vector<Life> models = LivesInside(*piece);
  const auto count = static_cast<std::size_t>(share * static_cast<double>(piece->blocks.size()) + 0.5);
  if (models.empty() || count == 0) return;
  // The generator's own distributions differ between standard libraries; the remainder does not, and its bias is
  // nothing at these sizes.
  const auto draw = [&](std::size_t below) { return static_cast<std::size_t>(random() % below); };
  std::vector<bool> dropped(piece->blocks.size());
  for (std::size_t i = 0; i < std::min(count, models.size()); ++i) dropped[models[draw(models.size())].block] = true;
  std::vector<Block> copies;
  std::vector<std::size_t> lives;
  for (std::size_t i = 0; i < count; ++i) {
    const Life& model = models[draw(models.size())];
    copies.push_back(piece->blocks[model.block]);
    lives.push_back(model.end - model.begin);
  }
  DropBlocks(dropped, piece);
  std::vector<Insertion> insertions;
  for (std::uint32_t i = 0; i < copies.size(); ++i) {
    const std::size_t begin = draw(piece->steps.size() + 1);
    insertions.push_back({begin, StepKind::kAllocate, i});
    insertions.push_back({std::min(begin + lives[i], piece->steps.size()), StepKind::kFree, i});
  }
  Insert(std::move(insertions), copies, piece);
}

void DelayFrees(Piece* piece, double share, std::uint32_t most_requests, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto draw = [&](std::uint64_t below) { return random() % below; };
  constexpr std::uint64_t kWhole = 1 << 20;
  const auto chosen = static_cast<std::uint64_t>(share * static_cast<double>(kWhole));
  std::vector<std::vector<Step>> due(piece->blocks.size() + 1);  // by the request that they come before
  std::vector<Step> steps;
  std::size_t requests = 0;
  for (const Step& step : piece->steps) {
    if (step.kind == StepKind::kAllocate) {
      steps.insert(steps.end(), due[requests].begin(), due[requests].end());
      ++requests;
    }
    if (step.kind == StepKind::kFree && most_requests > 0 && draw(kWhole) < chosen) {
      due[std::min<std::size_t>(requests + 1 + draw(most_requests), piece->blocks.size())].push_back(step);
    } else {
      steps.push_back(step);
    }
  }
  steps.insert(steps.end(), due.back().begin(), due.back().end());
  piece->steps = std::move(steps);
}

}  // namespace stalloc::bench
