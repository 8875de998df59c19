"""The layering check catches what it is there for."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from check_includes import violations_of


def test_include_of_an_earlier_layer_is_fine() -> None:
    text = '#include "allocator/driver/vmm_driver.h"\n#include "proto/model/units.h"\n#include <vector>\n'
    assert violations_of("allocator/arena/arena.h", text) == []


def test_include_of_a_later_layer_is_found() -> None:
    assert len(violations_of("allocator/arena/arena.cc", '#include "allocator/engine/plan_engine.h"\n')) == 1


def test_planner_and_allocator_do_not_know_each_other() -> None:
    assert violations_of("planner/cli/main.cc", '#include "allocator/base/log.h"\n')
    assert violations_of("allocator/engine/x.cc", '#include "planner/packing/problem/problem.h"\n')


def test_a_search_of_packings_knows_the_problem_and_not_what_is_built_on_it() -> None:
    assert violations_of("planner/packing/search/x.cc", '#include "planner/packing/problem/problem.h"\n') == []
    assert violations_of("planner/packing/search/x.cc", '#include "planner/packing/finish/tidy.h"\n')
    assert violations_of("planner/packing/finish/x.cc", '#include "planner/packing/portfolio.h"\n')


def test_only_the_trial_knows_the_engine_and_only_that() -> None:
    assert violations_of("planner/trial/x.cc", '#include "allocator/engine/plan_engine.h"\n') == []
    assert violations_of("planner/trial/x.cc", '#include "allocator/runtime/device_runtime.h"\n')
    assert violations_of("planner/analysis/x.cc", '#include "allocator/engine/plan_engine.h"\n')
    assert violations_of("planner/analysis/x.cc", '#include "planner/trial/slot_trial.h"\n')


def test_foreign_headers_stay_in_their_folders() -> None:
    assert violations_of("planner/analysis/x.cc", "#include <cuda.h>\n")
    assert violations_of("allocator/runtime/x.cc", '#include "absl/strings/str_cat.h"\n')
    assert violations_of("allocator/engine/x.cc", "#include <c10/core/Allocator.h>\n")
    assert violations_of("allocator/torch/x.cc", "#include <c10/core/Allocator.h>\n") == []
