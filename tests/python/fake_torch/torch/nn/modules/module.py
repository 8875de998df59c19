"""The global hooks, which nobody calls."""

from __future__ import annotations


class _Handle:
    def remove(self) -> None:
        """There is nothing to remove."""


def register_module_forward_pre_hook(hook: object) -> _Handle:
    return _Handle()


def register_module_forward_hook(hook: object, *, with_kwargs: bool = False) -> _Handle:
    return _Handle()


def register_module_parameter_registration_hook(hook: object) -> _Handle:
    return _Handle()
