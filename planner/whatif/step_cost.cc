#include "planner/whatif/step_cost.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <map>
#include <numeric>

namespace stalloc::planner {
namespace {

constexpr double kLarger = 1 + 1e-3;        // than another size
constexpr double kPassByHost = 0.5;         // of a pass is as long whatever its size: the host bounds it
constexpr std::size_t kMostIterations = 8;  // of a trace: the last ones show how long layers take

// The number of micro-batches that most steps have; the first of several.
double UsualCount(const std::vector<Timed>& steps) {
  std::map<double, int> often;
  for (const Timed& step : steps) ++often[step.load.count];
  return std::max_element(steps.begin(), steps.end(),
                          [&](const Timed& a, const Timed& b) { return often[a.load.count] < often[b.load.count]; })
      ->load.count;
}

}  // namespace

StepCost::StepCost(const TracedTimes& traced)
    : micro_batches_(traced.micro_batches), rest_(traced.rest), traced_passes_(traced.passes) {
  const double each = traced.passes / traced.micro_batches;
  growing_ = each;
  if (traced.other_passes.has_value()) {
    const double other = *traced.other_passes / traced.micro_batches;
    growing_ = std::min(each, std::max(0.0, (other - each) / (traced.ratio - 1)));
    fixed_ = each - growing_;
  }
  TakeFreeSteps(traced);
  if (device_.has_value()) TakeLayers(traced);
}

// As long as steps were untraced, by those with as many micro-batches as most.
void StepCost::TakeFreeSteps(const TracedTimes& traced) {
  std::vector<Timed> steps;
  std::copy_if(traced.free.begin(), traced.free.end(), std::back_inserter(steps),
               [](const Timed& step) { return step.load.size > 0; });
  if (steps.empty()) return;
  device_ = DeviceModel::FromSteps(traced.watched, steps);
  if (device_.has_value()) {
    const double lead = device_->lead();
    rest_ = lead + std::clamp(rest_ - lead, 0.0, device_->Seconds(traced.watched.front().load) - lead);
    return;
  }
  const double count = UsualCount(steps);
  std::vector<double> sizes;
  std::vector<double> seconds;
  for (const Timed& step : steps) {
    if (step.load.count != count) continue;
    sizes.push_back(step.load.size);
    seconds.push_back(step.seconds);
  }
  if (AreOne(sizes)) {  // what is in a step keeps its share
    const double mean = std::accumulate(sizes.begin(), sizes.end(), 0.0) / static_cast<double>(sizes.size());
    const double before = Seconds({count, mean, mean * mean / count, {}});
    const double slower = before > 0 ? LineBelow(sizes, seconds, false).always / before : 1;
    rest_ *= slower;
    fixed_ *= slower;
    growing_ *= slower;
    return;
  }
  const double largest = *std::max_element(sizes.begin(), sizes.end());
  if (traced.of_length) {  // growing x size + square x size^2, by relative errors
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      sizes[i] /= count;
      seconds[i] = std::max(0.0, seconds[i] - rest_) / count / sizes[i];
    }
    const Line speed = LineBelow(sizes, seconds);
    fixed_ = 0;
    growing_ = speed.always;
    square_ = speed.growing;
    return;
  }
  const Line line = LineBelow(sizes, seconds);
  rest_ = std::min(rest_, line.always);
  fixed_ = (line.always - rest_) / count;
  growing_ = line.growing;
  const double always = line.always - rest_;
  if (always > kPassByHost * (always + line.growing * largest)) known_ = largest / count;
}

// The first iteration warms up, and does not count; nor does what was compiled, or loaded, in some of them.
void StepCost::TakeLayers(const TracedTimes& traced) {
  std::map<std::string, std::vector<Timed>> timed;
  for (const auto& [layers, loads] : traced.layers) {
    for (const LayerTimes& layer : layers) {
      const std::size_t iterations = std::min(layer.iteration_ns.size(), loads.size());
      const std::size_t first = std::max<std::size_t>(1, iterations - std::min(iterations, kMostIterations));
      for (std::size_t i = first; i < iterations; ++i) {
        if (layer.iteration_ns[i] <= 0 || loads[i].size <= 0) continue;
        timed[layer.name].push_back({loads[i], static_cast<double>(layer.iteration_ns[i]) / 1e9});
      }
    }
  }
  for (const auto& [name, found] : timed) {
    if (!AreOne(found)) forward_[name] = LeastTerms(found);
  }
}

double StepCost::Passes(const Load& load, const Terms& again) const {
  if (device_.has_value()) {
    const double lead = device_->lead();
    return std::max(0.0, device_->Seconds(load, again) - lead - (rest_ - lead) * load.count / device_->count());
  }
  return load.count * fixed_ + load.size * growing_ + load.square * square_;
}

double StepCost::With(const Load& load, double growing, double fixed, const Terms& again) const {
  const double passes = Passes(load, again);
  const double slower = traced_passes_ > 0 ? passes / traced_passes_ : 0;
  return rest_ + passes + growing * slower + fixed;
}

double StepCost::Seconds(const Load& load, const ChoiceSeconds& choice) const {
  const std::optional<Terms> again = Again(choice.recomputed);
  if (choice.recomputed.empty() || !again.has_value()) {
    return With(load, choice.growing, choice.fixed * load.count / micro_batches_, {});
  }
  Terms terms{choice.fixed / micro_batches_, 0, 0};
  terms += *again;
  return With(load, std::max(0.0, choice.growing - choice.forward), 0, terms);
}

bool StepCost::AtLeast(const Load& load) const {
  return known_.has_value() && load.size > *known_ * load.count * kLarger;
}

std::optional<double> StepCost::HostShare(const Load& load) const {
  return device_.has_value() ? std::optional(device_->HostShare(load)) : std::nullopt;
}

std::optional<Terms> StepCost::Again(const std::vector<std::string>& layers) const {
  Terms sum;
  for (const std::string& layer : layers) {
    const auto found = forward_.find(layer);
    if (found == forward_.end()) return std::nullopt;
    sum += found->second;
  }
  return sum;
}

}  // namespace stalloc::planner
