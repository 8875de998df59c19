#include "planner/packing/search/window_sample.h"

#include <algorithm>

namespace stalloc::planner {
namespace {

// As many positions around the centre as `blocks` blocks begin in, on average.
Span WindowAround(std::uint32_t centre, std::size_t blocks, const Instance& whole) {
  const double positions_per_block = static_cast<double>(whole.positions()) / static_cast<double>(whole.size());
  const auto half = static_cast<std::uint32_t>(positions_per_block * static_cast<double>(blocks) / 2) + 1;
  return {centre - std::min(centre, half), std::min(whole.positions(), centre + half)};
}

Problem BlocksAlive(const Instance& whole, std::span<const std::uint32_t> centres, std::size_t blocks) {
  std::vector<Span> windows;
  for (const std::uint32_t centre : centres) windows.push_back(WindowAround(centre, blocks, whole));
  Problem problem;
  for (BlockIndex i = 0; i < whole.size(); ++i) {
    const Item& item = whole[i];
    const bool alive = std::any_of(windows.begin(), windows.end(), [&](const Span& window) {
      return window.Intersects(item.span) || window.Intersects(item.second);
    });
    if (alive) problem.blocks.push_back(whole.problem().blocks[i]);
  }
  return problem;
}

}  // namespace

WindowSample::WindowSample(const Instance& whole, std::span<const std::uint32_t> centres, std::size_t blocks)
    : problem_(BlocksAlive(whole, centres, blocks)), instance_(problem_) {}

std::vector<std::uint32_t> LoadPeaks(const Instance& instance, std::size_t parts) {
  const std::vector<Bytes> load = instance.Load();
  std::vector<std::uint32_t> peaks;
  for (std::size_t i = 0; i < parts; ++i) {
    const auto begin = load.begin() + static_cast<std::ptrdiff_t>(i * load.size() / parts);
    const auto end = load.begin() + static_cast<std::ptrdiff_t>((i + 1) * load.size() / parts);
    if (begin != end) peaks.push_back(static_cast<std::uint32_t>(std::max_element(begin, end) - load.begin()));
  }
  std::stable_sort(peaks.begin(), peaks.end(), [&](std::uint32_t a, std::uint32_t b) { return load[a] > load[b]; });
  return peaks;
}

}  // namespace stalloc::planner
