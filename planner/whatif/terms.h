// How long something takes by what it has to do, from how long it took for some of it. Seconds. Pure.
//
//   always + size x growing      what grows for the most part is taken to grow in proportion: products of matrices get
//                                no faster than they were at the largest size
//   size x growing + square x c  where twice the size takes more than twice as long: attention, which grows with the
//                                square of the rows' length
#pragma once

#include <utility>
#include <vector>

namespace stalloc::planner {

// For a micro-batch. Sizes are multiples of the largest that was traced.
struct Terms {
  double always = 0;
  double growing = 0;
  double square = 0;

  [[nodiscard]] double At(double size, double square_size) const {
    return always + growing * size + square * square_size;
  }
  Terms& operator+=(const Terms& other);
};

// What a step has to do: micro-batches, their sizes together, and, over that of the largest traced one, the squares of
// their rows' lengths together.
struct Load {
  // One of so many micro-batches that are alike.
  struct Part {
    double often = 0;
    double size = 0;
    double square = 0;
  };
  double count = 0;
  double size = 0;
  double square = 0;
  std::vector<Part> each;  // of which these are the sums; none: all are alike

  [[nodiscard]] std::vector<Part> MicroBatches() const;
};
// For a step with these micro-batches. `rows`: of each, over those of the largest traced one.
[[nodiscard]] Load LoadOf(const std::vector<double>& sizes, double rows = 1);

// Something that took so long for a load.
struct Timed {
  Load load;
  double seconds = 0;
};

struct Line {
  double always = 0;
  double growing = 0;
};

// Sizes that show nothing of what grows.
[[nodiscard]] bool AreOne(const std::vector<double>& sizes);
[[nodiscard]] bool AreOne(const std::vector<Timed>& timed);
// By least squares. REQUIRES: sizes above 0 that are not one.
[[nodiscard]] Terms TermsOf(const std::vector<Timed>& timed);
// With a quarter of the seconds below. REQUIRES: sizes above 0 that are not one.
[[nodiscard]] Terms LeastTerms(const std::vector<Timed>& timed);
// Two factors, neither below 0, of x and y. REQUIRES: a point with x and y above 0.
struct Point {
  double x = 0;
  double y = 0;
  double value = 0;
};
[[nodiscard]] std::pair<double, double> LeastSquares(const std::vector<Point>& points);
// What is always there, and what grows with the size, neither below 0: the line with a quarter of the points below it
// (R. Koenker and G. Bassett, "Regression Quantiles", Econometrica 46, 1978), where whatever else happens makes things
// longer and none shorter. Without `grows` nothing does. REQUIRES: a point, and sizes above 0. O(points^3).
[[nodiscard]] Line LineBelow(const std::vector<double>& sizes, const std::vector<double>& seconds, bool grows = true);

// The lower of the two in the middle counts with the upper one, as their mean. REQUIRES: a value.
[[nodiscard]] double Middle(std::vector<double> values);

}  // namespace stalloc::planner
