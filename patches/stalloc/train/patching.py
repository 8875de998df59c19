"""Functions of other packages replaced by marked ones, wherever they were copied to, and put back.

A `Target` names a function or method and the role that it plays in the training loop; the adapter has a factory of
wrappers for each role. A target that is not there is one warning, and the run goes on without its marks.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib.util
import inspect
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from types import ModuleType
from typing import Any, Callable, Optional

from stalloc.core import log
from stalloc.train import imports

Function = Callable[..., Any]
Version = tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class Target:
    """`attribute` of `module`, a function or "Class.method", in versions from `since` to, but without, `before`."""

    role: str
    module: str
    attribute: str
    since: Version = ()
    before: Optional[Version] = None

    @property
    def name(self) -> str:
        return f"{self.module}.{self.attribute}"

    def is_of(self, version: Version) -> bool:
        return self.since <= version and (self.before is None or version < self.before)


def parse_version(text: str) -> Version:
    """The leading numbers: "0.20.0rc1" is (0, 20, 0). Empty for what has none: only targets of all versions apply."""
    match = re.match(r"\d+(\.\d+)*", text)
    return tuple(int(number) for number in match.group().split(".")) if match else ()


def argument(function: Function, name: str) -> Callable[[Sequence[Any], Mapping[str, Any]], Any]:
    """Reads one argument of a call, however it was passed; None where it was not, or is no parameter at all."""
    parameters = list(inspect.signature(function).parameters.values())
    positions = [i for i, p in enumerate(parameters) if p.name == name and p.kind is p.POSITIONAL_OR_KEYWORD]
    position = positions[0] if positions else len(parameters)

    def read(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        return args[position] if position < len(args) and positions else kwargs.get(name)

    return read


class Patcher:
    """Patches one framework's targets as their modules are imported. Not thread-safe: imports are not either.

    `version` returns the framework's, once a module with targets is there; by default the package says it.
    """

    def __init__(
        self,
        framework: str,
        targets: Sequence[Target],
        wrappers: Mapping[str, Callable[[Function], Function]],
        version: Optional[Callable[[], str]] = None,
    ) -> None:
        self._framework = framework
        self._version = version or (lambda: _version_of(framework))
        self._targets = targets
        self._wrappers = wrappers
        self._patched: list[tuple[Any, str, Function, Function]] = []  # owner, name, original, wrapper
        self._warned: set[str] = set()
        self.active = False

    def apply(self) -> None:
        """Patches what is imported already, the rest when it is. A second time nothing."""
        if self.active:
            return
        self.active = True
        for module in dict.fromkeys(target.module for target in self._targets):
            imports.when_complete(module, self._patch_module)

    def undo(self) -> None:
        """Puts everything back. Wrappers that somebody holds out of our sight call the original from now on."""
        self.active = False
        for module in dict.fromkeys(target.module for target in self._targets):
            imports.forget(module, self._patch_module)
        for owner, name, original, wrapper in reversed(self._patched):
            if vars(owner).get(name) is wrapper:
                setattr(owner, name, original)
            self._replace_copies(owner, wrapper, original)
        self._patched.clear()

    def warn_of_missing_modules(self) -> None:
        """Reports which of the modules that were never imported do not exist in this version."""
        for target in self._targets_of_version():
            if target.module not in sys.modules and not _exists(target.module):
                self._warn(target)

    def _targets_of_version(self) -> Iterator[Target]:
        version = parse_version(self._version())
        return (target for target in self._targets if target.is_of(version))

    def _patch_module(self, module: ModuleType) -> None:
        if not self.active:
            return
        for target in self._targets_of_version():
            if target.module == module.__name__:
                self._patch(module, target)

    def _patch(self, module: ModuleType, target: Target) -> None:
        path, _, name = target.attribute.rpartition(".")
        owner = getattr(module, path, None) if path else module
        original = None if owner is None else vars(owner).get(name)
        if not inspect.isfunction(original):
            self._warn(target)
            return
        wrapper = self._wrapped(target.role, original)
        setattr(owner, name, wrapper)
        self._patched.append((owner, name, original, wrapper))
        self._replace_copies(owner, original, wrapper)

    def _replace_copies(self, owner: Any, old: Function, new: Function) -> None:
        if isinstance(owner, type):
            _replace_in_tables(owner, old, new)
        else:
            _replace_copies(old, new)

    def _wrapped(self, role: str, original: Function) -> Function:
        marked = self._wrappers[role](original)

        @functools.wraps(original)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            return (marked if self.active else original)(*args, **kwargs)

        return wrapper

    def _warn(self, target: Target) -> None:
        if target.name in self._warned:
            return
        self._warned.add(target.name)
        log.warning(
            f"{self._framework} {self._version()} has no {target.name}: its {target.role} marks are missing, and the "
            "run goes on with the others and the automatic ones"
        )


def _version_of(package: str) -> str:
    return str(getattr(sys.modules.get(package), "__version__", "of unknown version"))


def _exists(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):
        return False


def _replace_copies(old: Function, new: Function) -> None:
    """In every module: what `from … import …` bound, under whatever name."""
    for module in list(sys.modules.values()):
        namespace = getattr(module, "__dict__", None)
        if not isinstance(namespace, dict):
            continue
        for name, value in list(namespace.items()):
            if value is old:
                namespace[name] = new


def _replace_in_tables(owner: type, old: Function, new: Function) -> None:
    """In dicts of the class: what it dispatches by (DeepSpeed's pipeline instructions)."""
    for table in vars(owner).values():
        if isinstance(table, dict):
            table.update({key: new for key, value in table.items() if value is old})
