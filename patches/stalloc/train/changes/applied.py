"""`stalloc.apply`: applies the choice of `stalloc fit` to a model in plain torch.

A changed module keeps its name, its parameters and its hooks, and state dictionaries stay as they were (changed.py).
torch is imported by the call alone: `stalloc fit` needs none.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Optional, Union

from stalloc.core import module_paths
from stalloc.core.fit_files import ITSELF
from stalloc.core.json_files import read_object


class ApplyError(ValueError):
    """A choice does not fit the model. One line for the user."""


def apply(choice: Union[str, os.PathLike[str]], model: Any, optimizer: Optional[Any] = None) -> list[str]:
    """Applies the choice in fit.json to `model`, and returns the paths of the modules that it changed. Changes made
    earlier are not made again.

    Args:
        choice: the file that `stalloc fit --output` wrote.
        model: a torch.nn.Module with the modules of the traced one; not compiled or sharded yet.
        optimizer: needed where the optimizer's state is offloaded: it then lies on the host between two steps.
    Raises:
        ApplyError: the file is no choice, a module is not in the model or cannot be changed, or there is no optimizer;
            nothing was changed.
        OSError: the file cannot be read.
    """
    return apply_to(model, _read(Path(choice)), choice, optimizer)


def apply_to(
    model: Any, chosen: Mapping[str, Any], choice: Union[str, os.PathLike[str]], optimizer: Optional[Any] = None
) -> list[str]:
    """The same with what `choice` has chosen, as it was read: "recompute", "offload", "offload_state". The path ITSELF
    is the model's own."""
    from stalloc.train.changes import caches, changed, state

    known = dict(model.named_modules(remove_duplicate=False))
    found = [
        (path, model if path == ITSELF else _find(path, known, choice), way)
        for way in (changed.RECOMPUTE, changed.OFFLOAD)
        for path in chosen[way]
    ]
    with contextlib.ExitStack() as undo:
        if chosen["offload_state"]:
            undo.callback(_offload_state(optimizer, choice, state.offload))
        try:
            undo.callback(changed.change(((module, way) for _, module, way in found), model))
        except changed.ChangeError as error:
            path = next(path for path, module, _ in found if module is error.module)
            raise ApplyError(f"{choice}: {path} cannot be changed: {error}") from error
        if chosen[changed.RECOMPUTE]:
            caches.leave_out(model)
        undo.pop_all()
    return list(dict.fromkeys(path for path, _, _ in found))


def _read(path: Path) -> dict[str, Any]:
    content = read_object(path)
    chosen = content.get("chosen")
    if content.get("version") != module_paths.CHOICE_VERSION or not isinstance(chosen, dict):
        raise ApplyError(
            f"{path}: expected a choice of stalloc fit, version {module_paths.CHOICE_VERSION}, "
            f"found {content.get('version')!r}"
        )
    for name in ("recompute", "offload"):
        value = chosen.get(name)
        if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
            raise ApplyError(f"{path}: expected a list of paths as {name}, found {value!r}")
    if not isinstance(chosen.get("offload_state"), bool):
        raise ApplyError(f"{path}: expected true or false as offload_state, found {chosen.get('offload_state')!r}")
    return chosen


def _find(path: str, known: dict[str, Any], choice: Union[str, os.PathLike[str]]) -> Any:
    if not path:
        raise ApplyError(f"{choice}: expected paths of modules in the model, found an empty one")
    found = module_paths.modules_at(path, known)
    if len(found) == 1:
        return found[0]
    alike = module_paths.alike(path, known)
    others = f"; it has {', '.join(alike)}" if alike else ""
    raise ApplyError(f"{choice}: expected a module {path} in the model, found {len(found) or 'none'}{others}")


def _offload_state(optimizer: Any, choice: Union[str, os.PathLike[str]], offload: Any) -> Any:
    if optimizer is None:
        raise ApplyError(
            f"{choice} offloads the optimizer's state: call stalloc.apply({str(choice)!r}, model, optimizer)"
        )
    try:
        return offload(optimizer)
    except TypeError as error:
        raise ApplyError(f"{choice}: expected an optimizer of torch.optim, found {error}") from error
