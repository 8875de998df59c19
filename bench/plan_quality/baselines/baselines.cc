#include "bench/plan_quality/baselines/baselines.h"

namespace stalloc::planner {

std::vector<std::unique_ptr<Solver>> MakeBaselines() {
  std::vector<std::unique_ptr<Solver>> baselines;
  baselines.push_back(MakeOnlineFirstFit());
  baselines.push_back(MakeOnlineBestFit());
  baselines.push_back(MakeGreedyBySize());
  baselines.push_back(MakeTfliteGreedy());
  baselines.push_back(MakeXlaSpatial());
  baselines.push_back(MakeXlaTemporal());
  baselines.push_back(MakeUsmpHillClimb());
  return baselines;
}

}  // namespace stalloc::planner
