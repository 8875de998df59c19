"""The package has two wings, `train` and `tools`, on one `core`; what users import are faces in front of them."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

PACKAGES = Path(__file__).resolve().parents[2] / "patches"
# A part of the package: the parts whose modules it may import. What is not named is a face.
FACE = "face"
ALLOWED = {
    "core": {"core"},
    "train": {"core", "train"},
    "tools": {"core", "tools"},
    FACE: {"core", "train", "tools", FACE},
}
FACES = {
    "stalloc",
    "stalloc.__main__",
    "stalloc.cli",
    "stalloc.compat",
    "stalloc.frameworks",
    "stalloc.frameworks.loop",
    "stalloc.megatron",
    "stalloc.memory_saver",
    "stalloc.trace",
}
MOST_HIDDEN = 4  # of what imports torch itself, for which `import stalloc` does not wait


class Import(NamedTuple):
    """Of a module of the package; `hidden`: in a function."""

    module: str
    hidden: bool


def sources(root: Path) -> dict[str, str]:
    """The text of every module below `root`, by its dotted name."""
    found = {}
    for path in sorted(root.rglob("*.py")):
        name = ".".join(path.relative_to(root).with_suffix("").parts)
        found[name.removesuffix(".__init__")] = path.read_text(encoding="utf-8")
    return found


def imports(source: str, modules: Mapping[str, str]) -> Iterator[Import]:
    """What is for type checkers alone counts as well; relative imports and those by a text are ruff's to refuse."""
    yield from _below(ast.parse(source), modules, hidden=False)


def _below(node: ast.AST, modules: Mapping[str, str], hidden: bool) -> Iterator[Import]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            names = [alias.name for alias in child.names]
        elif isinstance(child, ast.ImportFrom):
            names = [_module(child.module or "", alias.name, modules) for alias in child.names]
        else:
            names = []
            in_function = hidden or isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
            yield from _below(child, modules, in_function)
        yield from (Import(name, hidden) for name in names if name.partition(".")[0] == "stalloc")


def _module(package: str, name: str, modules: Mapping[str, str]) -> str:
    return f"{package}.{name}" if f"{package}.{name}" in modules else package


def part(module: str) -> str:
    words = module.split(".")
    return words[1] if len(words) > 1 and words[1] in ALLOWED else FACE


def wrong(modules: Mapping[str, str]) -> set[str]:
    """Each import that its part may not have."""
    return {
        f"{name}: {found.module}"
        for name, source in modules.items()
        for found in imports(source, modules)
        if part(found.module) not in ALLOWED[part(name)]
    }


def hidden(modules: Mapping[str, str]) -> list[str]:
    """Each module of the package that a function imports, as often as one does."""
    return [
        f"{name}: {found.module}"
        for name, source in modules.items()
        for found in imports(source, modules)
        if found.hidden
    ]


def circles(modules: Mapping[str, str]) -> list[set[str]]:
    """Modules that import each other, at their tops or in functions, however many lie between."""
    after = {name: {found.module for found in imports(source, modules)} - {name} for name, source in modules.items()}
    reached = {name: _reached(name, after) for name in after}
    together = {name: {other for other in seen if name in reached.get(other, ())} for name, seen in reached.items()}
    return [set(ones) for ones in {frozenset(ones) for ones in together.values() if ones}]


def _reached(name: str, after: Mapping[str, set[str]]) -> set[str]:
    seen: set[str] = set()
    left = list(after[name])
    while left:
        one = left.pop()
        if one not in seen:
            seen.add(one)
            left += after.get(one, ())
    return seen


def test_no_part_imports_what_it_may_not() -> None:
    modules = sources(PACKAGES)
    assert {part(name) for name in modules} == set(ALLOWED)
    assert {name for name in modules if part(name) == FACE} == FACES
    assert wrong(modules) == set()


def test_no_modules_import_each_other() -> None:
    assert circles(sources(PACKAGES)) == []


def test_imports_stand_at_the_top() -> None:
    found = hidden(sources(PACKAGES))
    assert len(found) <= MOST_HIDDEN, found


def test_an_import_of_the_other_wing_is_found() -> None:
    below = "def f():\n    from stalloc.tools.report import page\n"
    modules = {"stalloc.train.x": below, "stalloc.tools.y": "import stalloc.train.x", "stalloc.tools.report.page": ""}
    assert wrong(modules) == {"stalloc.train.x: stalloc.tools.report.page", "stalloc.tools.y: stalloc.train.x"}


def test_an_import_of_a_face_is_found() -> None:
    modules = {"stalloc": "", "stalloc.cli": "import stalloc", "stalloc.core.x": "from stalloc import __version__"}
    assert wrong(modules) == {"stalloc.core.x: stalloc"}


def test_a_core_that_imports_a_wing_is_found() -> None:
    modules = {"stalloc.core.x": "from stalloc.train import y", "stalloc.train.y": "from stalloc.core.x import z"}
    assert wrong(modules) == {"stalloc.core.x: stalloc.train.y"}


def test_a_hidden_import_is_found_and_only_of_the_package() -> None:
    source = "import os\nclass A:\n    def f(self):\n        import torch\n        from stalloc.core import y\n"
    assert hidden({"stalloc.core.x": source, "stalloc.core.y": "from stalloc.core import x"}) == [
        "stalloc.core.x: stalloc.core.y"
    ]


def test_a_circle_is_found_through_hidden_imports_and_those_for_types() -> None:
    modules = {
        "stalloc.core.a": "from stalloc.core.b import x",
        "stalloc.core.b": "def f():\n    from stalloc.core import c\n",
        "stalloc.core.c": "if TYPE_CHECKING:\n    from stalloc.core import a\n",
        "stalloc.core.d": "from stalloc.core import a",
    }
    assert circles(modules) == [{"stalloc.core.a", "stalloc.core.b", "stalloc.core.c"}]
