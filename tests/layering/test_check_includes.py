"""The layering check catches what it is there for."""

from __future__ import annotations

import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import check_includes


class CheckIncludesTest(unittest.TestCase):
    def test_include_of_an_earlier_layer_is_fine(self) -> None:
        text = '#include "allocator/driver/vmm_driver.h"\n#include "proto/model/units.h"\n#include <vector>\n'
        self.assertEqual(check_includes.violations_of("allocator/arena/arena.h", text), [])

    def test_include_of_a_later_layer_is_found(self) -> None:
        text = '#include "allocator/engine/plan_engine.h"\n'
        self.assertEqual(len(check_includes.violations_of("allocator/arena/arena.cc", text)), 1)

    def test_planner_and_allocator_do_not_know_each_other(self) -> None:
        self.assertTrue(check_includes.violations_of("planner/cli/main.cc", '#include "allocator/base/log.h"\n'))
        self.assertTrue(check_includes.violations_of("allocator/engine/x.cc", '#include "planner/packing/problem.h"\n'))

    def test_foreign_headers_stay_in_their_folders(self) -> None:
        self.assertTrue(check_includes.violations_of("planner/analysis/x.cc", "#include <cuda.h>\n"))
        self.assertTrue(check_includes.violations_of("allocator/runtime/x.cc", '#include "absl/strings/str_cat.h"\n'))
        self.assertTrue(check_includes.violations_of("allocator/engine/x.cc", "#include <c10/core/Allocator.h>\n"))
        self.assertEqual(check_includes.violations_of("allocator/torch/x.cc", "#include <c10/core/Allocator.h>\n"), [])


if __name__ == "__main__":
    unittest.main()
