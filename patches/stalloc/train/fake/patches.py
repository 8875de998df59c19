"""Changes to torch that can be taken back."""

from __future__ import annotations

from typing import Any, Callable

_MISSING = object()


class Patches:
    """What was changed, in order."""

    def __init__(self) -> None:
        self._undo: list[Callable[[], object]] = []

    def set(self, owner: Any, name: str, value: Any) -> None:
        """An attribute of a module or class."""
        before = vars(owner).get(name, _MISSING)
        setattr(owner, name, value)
        if before is _MISSING:
            self._undo.append(lambda: delattr(owner, name))
        else:
            self._undo.append(lambda: setattr(owner, name, before))

    def call(self, do: Callable[[], object], undo: Callable[[], object]) -> None:
        do()
        self._undo.append(undo)

    def undo(self) -> None:
        """The latest first."""
        while self._undo:
            self._undo.pop()()
