// Solvers by their names, for tests.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string_view>
#include <utility>

#include "planner/packing/portfolio.h"

namespace stalloc::planner {

// One of MakeAllSolvers(). REQUIRES: there is one of that name.
[[nodiscard]] inline std::unique_ptr<Solver> NamedSolver(std::string_view name) {
  for (std::unique_ptr<Solver>& solver : MakeAllSolvers()) {
    if (solver->name() == name) return std::move(solver);
  }
  ADD_FAILURE() << "no solver has the name " << name;
  return nullptr;
}

}  // namespace stalloc::planner
