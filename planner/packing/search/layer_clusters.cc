#include "planner/packing/search/layer_clusters.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <span>
#include <vector>

#include "planner/packing/problem/random.h"
#include "planner/packing/search/near_peak.h"
#include "planner/packing/search/size_first_fit.h"

namespace stalloc::planner {
namespace {

constexpr std::size_t kClusterBatch = 4;  // of any number of threads, so that the outcome does not depend on it

using Cluster = std::vector<BlockIndex>;

class UnionFind {
 public:
  explicit UnionFind(std::size_t count) : parent_(count) {
    std::iota(parent_.begin(), parent_.end(), std::uint32_t{0});
  }

  std::uint32_t Find(std::uint32_t x) {
    while (parent_[x] != x) x = parent_[x] = parent_[parent_[x]];
    return x;
  }
  void Unite(std::uint32_t a, std::uint32_t b) { parent_[Find(b)] = Find(a); }

 private:
  std::vector<std::uint32_t> parent_;
};

std::uint32_t Distance(std::uint32_t a, std::uint32_t b) { return a < b ? b - a : a - b; }

// Alive for half of the time, or from early on to the end: weights, gradients, optimizer state.
bool IsResident(const Instance& instance, const Item& item) {
  const std::uint32_t share = item.span.end == instance.positions() ? 8 : 2;
  return item.persistent || std::uint64_t{item.span.length()} * share >= instance.positions();
}

// What may join a cluster, by start. A block with two lifetimes stays alone: its ends say nothing about a layer.
std::vector<BlockIndex> Members(const Instance& instance, const LayerClusterOptions& options) {
  std::vector<BlockIndex> members;
  for (BlockIndex i = 0; i < instance.size(); ++i) {
    const Item& item = instance[i];
    if (item.bytes >= options.min_bytes && item.end_step - item.start_step >= options.min_length &&
        item.second.empty() && !IsResident(instance, item)) {
      members.push_back(i);
    }
  }
  std::sort(members.begin(), members.end(),
            [&](BlockIndex a, BlockIndex b) { return instance[a].start_step < instance[b].start_step; });
  return members;
}

UnionFind Link(const Instance& instance, std::span<const BlockIndex> members, std::uint32_t window) {
  UnionFind sets(members.size());
  for (std::uint32_t i = 0; i < members.size(); ++i) {
    const Item& item = instance[members[i]];
    for (std::uint32_t j = i + 1; j < members.size(); ++j) {
      const Item& other = instance[members[j]];
      if (other.start_step - item.start_step > window) break;
      if (Distance(other.end_step, item.end_step) <= window) sets.Unite(i, j);
    }
  }
  return sets;
}

Bytes Total(const Instance& instance, const Cluster& cluster) {
  Bytes total = 0;
  for (const BlockIndex block : cluster) total += instance[block].bytes;
  return total;
}

// By start of their first members.
std::vector<Cluster> Clusters(const Instance& instance, const LayerClusterOptions& options) {
  constexpr std::uint32_t kNone = ~std::uint32_t{0};
  const std::vector<BlockIndex> members = Members(instance, options);
  UnionFind sets = Link(instance, members, options.window);
  std::vector<Cluster> clusters;
  std::vector<std::uint32_t> cluster_of(members.size(), kNone);
  for (std::uint32_t i = 0; i < members.size(); ++i) {
    std::uint32_t& cluster = cluster_of[sets.Find(i)];
    if (cluster == kNone) {
      cluster = static_cast<std::uint32_t>(clusters.size());
      clusters.emplace_back();
    }
    clusters[cluster].push_back(members[i]);
  }
  std::erase_if(clusters, [&](const Cluster& cluster) {
    return cluster.size() < 2 || Total(instance, cluster) < options.min_total;
  });
  return clusters;
}

void SortMembers(const Instance& instance, bool ends_ascending, Cluster& cluster) {
  std::stable_sort(cluster.begin(), cluster.end(), [&](BlockIndex a, BlockIndex b) {
    return ends_ascending ? instance[a].end_step < instance[b].end_step : instance[a].bytes > instance[b].bytes;
  });
}

void SortByTotal(const Instance& instance, std::vector<Cluster>& clusters) {
  std::stable_sort(clusters.begin(), clusters.end(),
                   [&](const Cluster& a, const Cluster& b) { return Total(instance, a) > Total(instance, b); });
}

// Draws options around what helped on recorded runs: a layer is some 10 to 50 steps long.
class OptionSource {
 public:
  OptionSource(const Instance& instance, std::uint64_t seed) : instance_(instance), random_(seed) {
    for (const Item& item : instance.items()) {
      // Light blocks do not matter, and above 1/64 little is left to unite.
      if (item.bytes >= LightBytes(instance) && item.bytes <= instance.load_bound() / 64) {
        sizes_.push_back(item.bytes);
      }
    }
    std::sort(sizes_.begin(), sizes_.end());
    sizes_.erase(std::unique(sizes_.begin(), sizes_.end()), sizes_.end());
  }

  LayerClusterOptions Next() {
    LayerClusterOptions options;
    options.window = 3 + random_.Below(40);
    options.min_length = 24u << random_.Below(4);
    if (!sizes_.empty()) options.min_bytes = sizes_[random_.Below(sizes_.size())];
    options.min_total = random_.Below(2) == 0 ? 1 : instance_.load_bound() / 128;
    options.ends_ascending = random_.Below(3) == 0;
    options.by_total = random_.Below(2) == 0;
    return options;
  }

 private:
  const Instance& instance_;
  Random random_;
  std::vector<Bytes> sizes_;
};

}  // namespace

StackOrder LayerClusterOrder(const Instance& instance, const LayerClusterOptions& options) {
  std::vector<Cluster> clusters = Clusters(instance, options);
  if (options.by_total) SortByTotal(instance, clusters);
  std::vector<bool> clustered(instance.size());
  for (Cluster& cluster : clusters) {
    SortMembers(instance, options.ends_ascending, cluster);
    for (const BlockIndex block : cluster) clustered[block] = true;
  }
  std::vector<BlockIndex> residents;
  std::vector<BlockIndex> others;
  for (const BlockIndex block : SizeOrder(instance)) {
    if (clustered[block]) continue;
    (IsResident(instance, instance[block]) ? residents : others).push_back(block);
  }
  StackOrder order(residents);
  for (const Cluster& cluster : clusters) order.AppendStack(cluster);
  order.AppendSingles(others);
  return order;
}

void TryLayerClusters(Evaluator& evaluator) {
  const Instance& instance = evaluator.instance();
  const Bytes bound = instance.load_bound();
  std::array<LayerClusterOptions, kClusterBatch> batch;
  for (std::size_t i = 0; i < kClusterBatch; ++i) {
    batch[i].window = i % 2 == 0 ? 12 : 20;
    batch[i].min_bytes = bound / (i / 2 == 0 ? 1500 : 4000);
    batch[i].min_total = bound / 128;
  }
  evaluator.Run(kClusterBatch, [&](std::size_t i) { return LayerClusterOrder(instance, batch[i]); });
}

void SearchLayerClusters(Evaluator& evaluator, std::uint64_t seed, int rounds) {
  const Instance& instance = evaluator.instance();
  OptionSource source(instance, seed);
  for (int round = 0; round < rounds && !evaluator.state().Done(); ++round) {
    std::array<LayerClusterOptions, kClusterBatch> batch;
    for (LayerClusterOptions& options : batch) options = source.Next();
    evaluator.Run(batch.size(), [&](std::size_t i) { return LayerClusterOrder(instance, batch[i]); });
  }
}

}  // namespace stalloc::planner
