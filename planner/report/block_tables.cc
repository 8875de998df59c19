#include "planner/report/block_tables.h"

#include <algorithm>
#include <numeric>
#include <tuple>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "planner/analysis/peak.h"
#include "planner/analysis/sweep.h"

namespace stalloc::planner {
namespace {

// Of the indices of `chosen`, sets the first `most` by `before`.
template <typename Before>
void ChooseFirst(std::size_t most, const Before& before, std::vector<bool>* chosen) {
  std::vector<std::size_t> order(chosen->size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), before);
  order.resize(std::min(order.size(), most));
  for (const std::size_t index : order) (*chosen)[index] = true;
}

}  // namespace

PeakView GroupPeak(const DeviceFacts& facts, std::size_t most_groups) {
  PeakView view;
  const PeakMoment moment = FindPeakMoment(facts.device);
  view.event = moment.event;
  view.live_bytes = moment.live_bytes;
  using Key = std::tuple<Bytes, MemoryClass, std::uint32_t, std::uint32_t, std::uint32_t, std::uint32_t, TensorRole,
                         std::uint32_t, std::uint32_t, std::uint32_t>;
  absl::flat_hash_map<Key, std::size_t> known;
  for (std::size_t i = 0; i < facts.blocks.size(); ++i) {
    const Allocation& allocation = facts.device.allocations[i];
    if (allocation.event > view.event || allocation.free_event < view.event) continue;
    const BlockFact& fact = facts.blocks[i];
    const Key key{allocation.bytes,  fact.memory_class, fact.phase,       fact.free_phase,  fact.layer,
                  allocation.stream, fact.role,         fact.names.first, fact.names.count, fact.stack};
    const auto [found, is_new] = known.try_emplace(key, view.groups.size());
    if (is_new) {
      view.groups.push_back({allocation.bytes, fact, allocation.stream, 0, allocation.outside ? 0 : allocation.ordinal,
                             static_cast<std::uint32_t>(i)});
    }
    ++view.groups[found->second].count;
  }
  std::stable_sort(view.groups.begin(), view.groups.end(),
                   [](const PeakGroup& a, const PeakGroup& b) { return a.bytes * a.count > b.bytes * b.count; });
  for (; view.groups.size() > most_groups; view.groups.pop_back()) {
    view.omitted_bytes += view.groups.back().bytes * view.groups.back().count;
    view.omitted_blocks += view.groups.back().count;
  }
  return view;
}

TopView TopGroups(const DeviceFacts& facts, std::size_t most) {
  using Key = std::tuple<Bytes, MemoryClass, std::uint32_t, std::uint32_t, std::uint32_t>;
  absl::flat_hash_map<Key, std::size_t> known;
  absl::flat_hash_set<std::pair<std::size_t, std::uint32_t>> named;  // group, name: a tensor comes once an iteration
  std::vector<RunGroup> groups;
  TopView top;
  for (std::size_t i = 0; i < facts.blocks.size(); ++i) {
    const Allocation& allocation = facts.device.allocations[i];
    const BlockFact& fact = facts.blocks[i];
    const std::uint32_t role = facts.role_of[fact.phase];
    const auto [found, is_new] =
        known.try_emplace(Key{allocation.bytes, fact.memory_class, role, fact.layer, fact.stack}, groups.size());
    if (is_new) groups.push_back({allocation.bytes, fact.memory_class, role, fact.layer, fact.stack, {}});
    RunGroup& group = groups[found->second];
    const std::int64_t end = allocation.freed() ? facts.clock.time_ns[allocation.free_event] : facts.clock.end_ns();
    const std::int64_t life = end - facts.clock.time_ns[allocation.event];
    const double byte_seconds = static_cast<double>(allocation.bytes) * static_cast<double>(life) * 1e-9;
    ++group.count;
    group.longest_ns = std::max(group.longest_ns, life);
    group.byte_seconds += byte_seconds;
    top.all_byte_seconds += byte_seconds;
    if (fact.names.count == 0 || !named.emplace(found->second, fact.names.first).second) continue;
    if (group.names.count == 0) group.names.first = fact.names.first;
    group.names.count += fact.names.count;
  }
  std::vector<bool> chosen(groups.size(), false);
  ChooseFirst(
      most, [&](std::size_t a, std::size_t b) { return groups[a].bytes > groups[b].bytes; }, &chosen);
  ChooseFirst(
      most, [&](std::size_t a, std::size_t b) { return groups[a].byte_seconds > groups[b].byte_seconds; }, &chosen);
  for (std::size_t i = 0; i < groups.size(); ++i) {
    if (chosen[i]) top.groups.push_back(groups[i]);
  }
  return top;
}

}  // namespace stalloc::planner
