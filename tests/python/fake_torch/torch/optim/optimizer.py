"""The global step hooks, with the real one's names."""

from __future__ import annotations

from typing import Any, Callable

_pre: dict[int, Callable[..., Any]] = {}
_post: dict[int, Callable[..., Any]] = {}


class _Handle:
    def __init__(self, hooks: dict[int, Callable[..., Any]], hook: Callable[..., Any]) -> None:
        self._hooks, self._key = hooks, id(self)
        hooks[self._key] = hook

    def remove(self) -> None:
        self._hooks.pop(self._key, None)


def register_optimizer_step_pre_hook(hook: Callable[..., Any]) -> _Handle:
    return _Handle(_pre, hook)


def register_optimizer_step_post_hook(hook: Callable[..., Any]) -> _Handle:
    return _Handle(_post, hook)


class Optimizer:
    """Its state is there from the beginning."""

    def __init__(self) -> None:
        self.param_groups: list[dict[str, Any]] = []
        self.state: dict[Any, Any] = {"parameter": {}}

    def step(self) -> None:
        for hook in list(_pre.values()):
            hook(self, (), {})
        self._update()
        for hook in list(_post.values()):
            hook(self, (), {})

    def _update(self) -> None:
        """What a step does, between the hooks."""

    def load_state_dict(self, state_dict: object) -> None:
        """Makes nothing."""
