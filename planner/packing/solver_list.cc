#include "planner/packing/solver_list.h"

#include "planner/packing/exact_search.h"
#include "planner/packing/interleaved.h"
#include "planner/packing/layer_clusters.h"
#include "planner/packing/portfolio.h"
#include "planner/packing/revolutions.h"
#include "planner/packing/sampled_classes.h"
#include "planner/packing/size_classes.h"
#include "planner/packing/size_first_fit.h"

namespace stalloc::planner {

std::vector<std::unique_ptr<Solver>> MakeAllSolvers() {
  std::vector<std::unique_ptr<Solver>> solvers;
  solvers.push_back(MakeSizeFirstFit());
  solvers.push_back(MakeSizeClasses());
  solvers.push_back(MakeSampledClasses());
  solvers.push_back(MakeLayerClusters());
  solvers.push_back(MakeRing());
  solvers.push_back(MakeInterleaved());
  solvers.push_back(MakeExactSearch());
  solvers.push_back(MakePortfolio());
  return solvers;
}

}  // namespace stalloc::planner
