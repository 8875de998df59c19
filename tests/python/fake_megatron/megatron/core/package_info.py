from __future__ import annotations

import os

__version__ = os.environ.get("FAKE_MEGATRON_VERSION", "0.19.2")


def before(*version: int) -> bool:
    return tuple(int(number) for number in __version__.split(".")[:2]) < version


def leave_out_missing(module: str, namespace: dict[str, object]) -> None:
    """Deletes what this version is said not to have: functions, classes, methods."""
    for name in os.environ.get("FAKE_MEGATRON_MISSING", "").split():
        path = name.removeprefix(f"{module}.")
        if path == name:
            continue
        owner, _, attribute = path.rpartition(".")
        if not owner:
            namespace.pop(attribute, None)
        elif owner in namespace:
            delattr(namespace[owner], attribute)
