#include "planner/whatif/device_model.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <utility>

namespace stalloc::planner {
namespace {

constexpr double kAsOften = 0.5;  // of the launches of a kernel in another step: then it does the same in both
constexpr double kLeastSlower = 0.25;
constexpr double kMostSlower = 4;  // than while it is watched
constexpr int kHalves = 16;
constexpr double kNear = 0.03;   // what is predicted this well is known
constexpr double kByHost = 0.5;  // of a step
constexpr double kGrows = 0.5;   // of the growth of its work: a part that grows by this much is bound by the device

bool Communicates(std::string name) {
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::tolower(c); });
  return name.find("nccl") != std::string::npos;
}

bool IsLike(const WatchedStep& one, const WatchedStep& other) {
  if (one.seconds.size() != other.seconds.size() || one.load.count != other.load.count ||
      one.load.size != other.load.size || one.load.square != other.load.square) {
    return false;
  }
  const KernelTimes whole = one.Whole();
  const KernelTimes its = other.Whole();
  return std::equal(whole.begin(), whole.end(), its.begin(), its.end(), [](const auto& a, const auto& b) {
    return a.first == b.first && a.second.launches == b.second.launches;
  });
}

// A kernel's seconds in each step, where all have it about as often.
std::optional<std::vector<Timed>> Apart(const std::string& name, const std::vector<const WatchedStep*>& steps,
                                        std::size_t part) {
  std::vector<Timed> timed;
  double least = 0;
  double most = 0;
  for (const WatchedStep* const step : steps) {
    const auto found = step->busy[part].find(name);
    if (found == step->busy[part].end()) return std::nullopt;
    least = timed.empty() ? found->second.launches : std::min(least, found->second.launches);
    most = std::max(most, found->second.launches);
    timed.push_back({step->load, found->second.seconds});
  }
  return least >= kAsOften * most ? std::optional(std::move(timed)) : std::nullopt;
}

// Kernels that one step has and another has not are counted together: which one multiplies matrices depends on their
// size.
Terms TermsOfPart(const std::vector<const WatchedStep*>& steps, std::size_t part) {
  std::vector<Timed> others;
  for (const WatchedStep* const step : steps) {
    double seconds = 0;
    for (const auto& [name, time] : step->busy[part])
      seconds += Apart(name, steps, part).has_value() ? 0 : time.seconds;
    others.push_back({step->load, seconds});
  }
  Terms terms = TermsOf(others);
  for (const auto& [name, time] : steps.front()->busy[part]) {
    const std::optional<std::vector<Timed>> timed = Apart(name, steps, part);
    if (timed.has_value()) terms += Communicates(name) ? LeastTerms(*timed) : TermsOf(*timed);
  }
  return terms;
}

// Seconds by which the device idles in a part of the large steps; 0: the host bounds it there.
double GapOf(const std::vector<const WatchedStep*>& steps, std::size_t part) {
  double mean = 0;
  for (const WatchedStep* const step : steps) mean += step->load.size / static_cast<double>(steps.size());
  std::vector<double> lasted[2];  // of small and of large steps
  std::vector<double> worked[2];
  for (const WatchedStep* const step : steps) {
    double busy = 0;
    for (const auto& [name, time] : step->busy[part]) busy += time.seconds;
    const int large = step->load.size > mean ? 1 : 0;
    lasted[large].push_back(step->seconds[part]);
    worked[large].push_back(busy);
  }
  const double work = Middle(worked[1]);
  const double more = work - Middle(worked[0]);
  if (more <= 0 || Middle(lasted[1]) - Middle(lasted[0]) < kGrows * more) return 0;
  return std::max(0.0, Middle(lasted[1]) - work);
}

double ErrorOf(const std::vector<double>& seconds, const std::vector<WatchedStep>& steps) {
  std::vector<Point> points;
  for (std::size_t i = 0; i < steps.size(); ++i)
    points.push_back({steps[i].load.size, steps[i].load.square, seconds[i]});
  const auto [growing, square] = LeastSquares(points);
  double sum = 0;
  for (const Point& point : points) {
    const double error = point.value - growing * point.x - square * point.y;
    sum += error * error;
  }
  return sum;
}

}  // namespace

KernelTimes WatchedStep::Whole() const {
  KernelTimes whole;
  for (const KernelTimes& part : busy) {
    for (const auto& [name, time] : part) {
      whole[name].seconds += time.seconds;
      whole[name].launches += time.launches;
    }
  }
  return whole;
}

WatchedStep WatchedStep::Least(const std::vector<WatchedStep>& others) const {
  WatchedStep least = *this;
  const KernelTimes own = Whole();
  std::map<std::string, double> seconds_of;
  for (const auto& [name, time] : own) seconds_of[name] = time.seconds;
  for (const WatchedStep& other : others) {
    if (!IsLike(*this, other)) continue;
    for (const auto& [name, time] : other.Whole()) seconds_of[name] = std::min(seconds_of[name], time.seconds);
    for (std::size_t i = 0; i < least.seconds.size(); ++i) {
      least.seconds[i] = std::min(least.seconds[i], other.seconds[i]);
    }
  }
  for (KernelTimes& part : least.busy) {
    for (auto& [name, time] : part) {
      const double whole = own.at(name).seconds;
      time.seconds *= seconds_of[name] / (whole == 0 ? 1 : whole);
    }
  }
  return least;
}

std::optional<DeviceModel> DeviceModel::FromSteps(const std::vector<WatchedStep>& steps,
                                                  const std::vector<Timed>& free) {
  std::size_t parts = steps.empty() ? 0 : steps.front().seconds.size();
  for (const WatchedStep& step : steps) parts = std::min(parts, step.seconds.size());
  std::vector<const WatchedStep*> alike;
  std::vector<double> sizes;
  for (const WatchedStep& step : steps) {
    if (step.seconds.size() != parts || step.load.size <= 0) continue;
    alike.push_back(&step);
    sizes.push_back(step.load.size);
  }
  if (AreOne(sizes)) return std::nullopt;
  DeviceModel model;
  model.count_ = alike.front()->load.count;
  for (std::size_t i = 0; i < parts; ++i) {
    Part part;
    part.host = alike.front()->seconds[i];
    for (const WatchedStep* const step : alike) part.host = std::min(part.host, step->seconds[i]);
    part.gap = GapOf(alike, i);
    part.device = TermsOfPart(alike, i);
    model.parts_.push_back(part);
  }
  model.lead_ = model.LeadOf(free);
  return model.Slower(model.HowSlow(model.Informative(free)));
}

double DeviceModel::Seconds(const Load& load, const Terms& again) const {
  double seconds = lead_;
  for (const Load::Part& one : load.MicroBatches()) seconds += one.often * MicroBatch(one, again);
  return seconds;
}

double DeviceModel::MicroBatch(const Load::Part& one, const Terms& again) const {
  double whole = 0;
  double host = 0;
  for (const Part& part : parts_) {
    whole += part.device.At(one.size, one.square);
    host += part.host / count_;
  }
  if (whole <= 0) return host + again.always;
  // What is always there of `again` is the host's, too.
  const double more = again.At(one.size, one.square) / whole;
  double seconds = 0;
  for (const Part& part : parts_) {
    const double works = part.device.At(one.size, one.square);
    seconds += std::max(part.host / count_ + again.always * works / whole, part.gap / count_ + works * (1 + more));
  }
  return seconds;
}

double DeviceModel::HostShare(const Load& load) const {
  double bound = lead_;
  for (const Load::Part& one : load.MicroBatches()) {
    for (const Part& part : parts_) {
      const double by_device = part.gap + count_ * part.device.At(one.size, one.square);
      const bool by_host = part.host > by_device * (1 + kNear);  // the shortest that was seen may be the device's
      bound += one.often / count_ * (by_host ? part.host : part.gap);
    }
  }
  return bound / Seconds(load);
}

DeviceModel DeviceModel::Slower(double times) const {
  DeviceModel slower = *this;
  for (Part& part : slower.parts_) {
    part.host *= times;
    part.gap *= times;
  }
  return slower;
}

// Only where steps of two sizes have it, and the device bounds the large ones: what these take in addition is in no
// part.
double DeviceModel::LeadOf(const std::vector<Timed>& free) const {
  std::vector<double> sizes;
  for (const Timed& step : free) sizes.push_back(step.load.size / step.load.count);
  if (AreOne(sizes)) return 0;
  const double mean = std::accumulate(sizes.begin(), sizes.end(), 0.0) / static_cast<double>(sizes.size());
  std::vector<double> more[2];  // in small and in large steps
  std::vector<double> shares;
  for (std::size_t i = 0; i < free.size(); ++i) {
    const int large = sizes[i] > mean ? 1 : 0;
    more[large].push_back(free[i].seconds - Seconds(free[i].load));
    if (large == 1) shares.push_back(HostShare(free[i].load));
  }
  if (Middle(std::move(shares)) > kByHost) return 0;
  return std::max(0.0, std::min(Middle(more[0]), Middle(more[1])));
}

// The steps that show how slow the host is: those with large micro-batches where it bounds them, for libraries choose a
// kernel for each new shape, and these have more shapes; else all.
std::vector<Timed> DeviceModel::Informative(const std::vector<Timed>& free) const {
  if (free.empty()) return free;
  double mean = 0;
  for (const Timed& step : free) mean += step.load.size / step.load.count / static_cast<double>(free.size());
  std::vector<Timed> large;
  std::vector<double> shares;
  for (const Timed& step : free) {
    if (step.load.size / step.load.count <= mean) continue;
    large.push_back(step);
    shares.push_back(HostShare(step.load));
  }
  return !large.empty() && Middle(shares) > kByHost ? large : free;
}

// So many times as slow is the host that half of the steps are shorter; by halves, for a host that is slower makes no
// step shorter. Steps that are about as long as they are say nothing of the host.
double DeviceModel::HowSlow(const std::vector<Timed>& free) const {
  const auto middle_of = [&](const auto& value) {
    std::vector<double> values;
    for (const Timed& step : free) values.push_back(value(step));
    return Middle(std::move(values));
  };
  if (free.empty()) return 1;
  const double ratio = middle_of([&](const Timed& step) { return step.seconds / Seconds(step.load); });
  if (std::abs(ratio - 1) < kNear) return 1;
  double least = kLeastSlower;
  double most = kMostSlower;
  for (int i = 0; i < kHalves; ++i) {
    const double middle = std::sqrt(least * most);
    const DeviceModel other = Slower(middle);
    const double longer = middle_of([&](const Timed& step) { return step.seconds - other.Seconds(step.load); });
    (longer > 0 ? least : most) = middle;
  }
  return std::sqrt(least * most);
}

bool AreTogether(const std::vector<WatchedStep>& together, const std::vector<WatchedStep>& apart) {
  std::vector<double> sizes;
  std::vector<KernelTimes> kernels;
  for (const WatchedStep& step : together) {
    sizes.push_back(step.load.size);
    kernels.push_back(step.Whole());
  }
  if (AreOne(sizes)) return false;
  double errors[2] = {0, 0};
  for (const auto& [name, time] : kernels.front()) {
    std::vector<Timed> timed;
    std::vector<double> seconds;
    for (std::size_t i = 0; i < together.size(); ++i) {
      const auto found = kernels[i].find(name);
      if (found == kernels[i].end()) break;
      timed.push_back({together[i].load, found->second.seconds});
      seconds.push_back(found->second.seconds);
    }
    if (timed.size() < together.size() || TermsOf(timed).square <= 0) continue;
    errors[0] += ErrorOf(seconds, together);
    errors[1] += ErrorOf(seconds, apart);
  }
  return errors[0] < errors[1];
}

}  // namespace stalloc::planner
