#include "planner/whatif/terms.h"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <utility>

namespace stalloc::planner {
namespace {

constexpr double kSpread = 1e-3;  // of the squared mean: sizes that are one
constexpr double kMore = 1.25;    // times as much as in proportion: it grows with the square
constexpr double kBelow = 0.25;   // of the points lie below a line

double ErrorOf(const Line& line, const std::vector<double>& sizes, const std::vector<double>& seconds) {
  double sum = 0;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const double above = seconds[i] - line.always - line.growing * sizes[i];
    sum += above >= 0 ? kBelow * above : (kBelow - 1) * above;
  }
  return sum;
}

double InProportion(const std::vector<Timed>& timed) {
  double product = 0;
  double squares = 0;
  for (const Timed& one : timed) {
    product += one.load.size * one.seconds;
    squares += one.load.size * one.load.size;
  }
  return product / squares;
}

double MeanSize(const std::vector<Timed>& timed) {
  const double sum = std::accumulate(timed.begin(), timed.end(), 0.0,
                                     [](double all, const Timed& one) { return all + one.load.size; });
  return sum / static_cast<double>(timed.size());
}

}  // namespace

Terms& Terms::operator+=(const Terms& other) {
  always += other.always;
  growing += other.growing;
  square += other.square;
  return *this;
}

std::vector<Load::Part> Load::MicroBatches() const {
  return each.empty() ? std::vector<Part>{{count, size / count, square / count}} : each;
}

Load LoadOf(const std::vector<double>& sizes, double rows) {
  Load load;
  for (const double size : sizes) {
    const Load::Part part{1, size, size * size / rows};
    load.count += 1;
    load.size += part.size;
    load.square += part.square;
    load.each.push_back(part);
  }
  return load;
}

bool AreOne(const std::vector<double>& sizes) {
  if (sizes.empty()) return true;
  const double mean = std::accumulate(sizes.begin(), sizes.end(), 0.0) / static_cast<double>(sizes.size());
  double spread = 0;
  for (const double size : sizes) spread += (size - mean) * (size - mean);
  return spread < kSpread * mean * mean * static_cast<double>(sizes.size());
}

bool AreOne(const std::vector<Timed>& timed) {
  std::vector<double> sizes;
  for (const Timed& one : timed) sizes.push_back(one.load.size);
  return AreOne(sizes);
}

Terms TermsOf(const std::vector<Timed>& timed) {
  const double mean = MeanSize(timed);
  double seconds[2] = {0, 0};  // of small and of large ones
  double sizes[2] = {0, 0};
  std::vector<Point> by_square;
  std::vector<Point> by_count;
  for (const Timed& one : timed) {
    const int large = one.load.size > mean ? 1 : 0;
    seconds[large] += one.seconds;
    sizes[large] += one.load.size;
    by_square.push_back({one.load.size, one.load.square, one.seconds});
    by_count.push_back({one.load.count, one.load.size, one.seconds});
  }
  if (seconds[1] / sizes[1] > seconds[0] / sizes[0] * kMore) {
    const auto [growing, square] = LeastSquares(by_square);
    return {0, growing, square};
  }
  const auto [always, growing] = LeastSquares(by_count);
  if (always * timed.front().load.count < growing * mean) return {0, InProportion(timed), 0};
  return {always, growing, 0};
}

Terms LeastTerms(const std::vector<Timed>& timed) {
  std::vector<double> sizes;
  std::vector<double> seconds;
  double count = 0;
  for (const Timed& one : timed) {
    sizes.push_back(one.load.size);
    seconds.push_back(one.seconds);
    count += one.load.count;
  }
  const Line line = LineBelow(sizes, seconds);
  if (line.always > 0) return {line.always * static_cast<double>(timed.size()) / count, line.growing, 0};
  for (std::size_t i = 0; i < timed.size(); ++i) {
    seconds[i] /= sizes[i];
    sizes[i] = timed[i].load.square / sizes[i];
  }
  const Line relative = LineBelow(sizes, seconds);
  return {0, relative.always, relative.growing};
}

std::pair<double, double> LeastSquares(const std::vector<Point>& points) {
  double xx = 0;
  double xy = 0;
  double yy = 0;
  double xv = 0;
  double yv = 0;
  for (const Point& point : points) {
    xx += point.x * point.x;
    xy += point.x * point.y;
    yy += point.y * point.y;
    xv += point.x * point.value;
    yv += point.y * point.value;
  }
  const double determinant = xx * yy - xy * xy;
  if (determinant > 0) {
    const double of_x = (xv * yy - yv * xy) / determinant;
    const double of_y = (yv * xx - xv * xy) / determinant;
    if (of_x >= 0 && of_y >= 0) return {of_x, of_y};
  }
  // With one of them alone, the better one: xx x^2 - 2 x xv is its error.
  if (xv * xv / xx >= yv * yv / yy) return {xv / xx, 0};
  return {0, yv / yy};
}

Line LineBelow(const std::vector<double>& sizes, const std::vector<double>& seconds, bool grows) {
  std::vector<Line> lines;
  for (const double second : seconds) lines.push_back({second, 0});
  for (std::size_t i = 0; grows && i < sizes.size(); ++i) lines.push_back({0, seconds[i] / sizes[i]});
  for (std::size_t i = 0; grows && i < sizes.size(); ++i) {
    for (std::size_t j = i + 1; j < sizes.size(); ++j) {
      if (sizes[j] == sizes[i]) continue;
      const double growing = (seconds[j] - seconds[i]) / (sizes[j] - sizes[i]);
      if (growing >= 0 && seconds[i] >= growing * sizes[i]) lines.push_back({seconds[i] - growing * sizes[i], growing});
    }
  }
  return *std::min_element(lines.begin(), lines.end(), [&](const Line& a, const Line& b) {
    return ErrorOf(a, sizes, seconds) < ErrorOf(b, sizes, seconds);
  });
}

double Middle(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

}  // namespace stalloc::planner
