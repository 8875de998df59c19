"""Targets, versions, arguments of calls, and every place where a patched function is found again."""

from __future__ import annotations

import sys
import types
from collections.abc import Iterator
from typing import Any

import pytest

from stalloc.train.patching import Function, Patcher, Target, argument, parse_version


class Engine:
    def run(self, buffer: int) -> int:
        return buffer

    TABLE = {"run": run, "other": len}  # noqa: RUF012  # what a class dispatches by

    def dispatch(self, name: str, buffer: int) -> int:
        return self.TABLE[name](self, buffer)


@pytest.fixture
def module() -> Iterator[Any]:
    """A module with the class and a function, and another that copied the function."""
    first: Any = types.ModuleType("stalloc_test_first")
    second: Any = types.ModuleType("stalloc_test_second")
    first.Engine = Engine
    exec("def step(a, b=2, *, c=3): return a + b + c", first.__dict__)
    second.mine = first.step
    sys.modules.update({first.__name__: first, second.__name__: second})
    yield first
    del sys.modules[first.__name__], sys.modules[second.__name__]


def counting(calls: list[str], name: str) -> Any:
    def wrap(original: Function) -> Function:
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            calls.append(name)
            return original(*args, **kwargs)

        return wrapper

    return wrap


def test_copies_in_modules_and_tables_of_classes_are_patched_and_put_back(module: Any) -> None:
    calls: list[str] = []
    targets = [Target("step", module.__name__, "step"), Target("run", module.__name__, "Engine.run")]
    wrappers = {"step": counting(calls, "step"), "run": counting(calls, "run")}
    patcher = Patcher("test", targets, wrappers, lambda: "1.0")
    before = (module.step, Engine.run, Engine.TABLE["run"], sys.modules["stalloc_test_second"].mine)
    patcher.apply()
    assert (module.step(1), sys.modules["stalloc_test_second"].mine(1)) == (6, 6)
    assert (Engine().run(4), Engine().dispatch("run", 5)) == (4, 5)
    assert calls == ["step", "step", "run", "run"]
    patcher.undo()
    assert (module.step, Engine.run, Engine.TABLE["run"], sys.modules["stalloc_test_second"].mine) == before
    assert Engine.TABLE["other"] is len
    module.step(1)
    assert len(calls) == 4


def test_a_target_is_of_the_versions_from_since_on_and_before_before() -> None:
    target = Target("step", "module", "step", since=(0, 17), before=(0, 19))
    versions = ["0.16.1", "0.17", "0.17.0rc0", "0.18.2", "0.19.0", "1", "of unknown version"]
    assert [target.is_of(parse_version(version)) for version in versions] == [
        False,
        True,
        True,
        True,
        False,
        False,
        False,
    ]
    assert Target("step", "module", "step").is_of(parse_version("of unknown version"))


def test_an_argument_is_read_however_it_was_passed(module: Any) -> None:
    b, c, none = (argument(module.step, name) for name in ("b", "c", "d"))
    assert [b((1, 5), {}), b((1,), {"b": 6}), b((1,), {})] == [5, 6, None]
    assert [c((1, 5), {"c": 7}), c((1, 5), {})] == [7, None]
    assert none((1, 5), {"c": 7}) is None
