"""Names of modules and tensors without the wrappers around a model, which say nothing: they are long, and alike.

"DistributedDataParallel#3.module.module.decoder.layers.2.mlp" is shown as "#3 decoder.layers.2.mlp": the third model of
the process, here the third chunk of a pipeline's stage.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

# The model that is called so, and the attributes through which wrappers hold what they wrap.
_HOLDER = r"\.(?:module|_orig_mod|_fsdp_wrapped_module)\b"
_WRAPPED = re.compile(rf"^(?P<root>\w+)(?P<number>#\d+)?(?:{_HOLDER})+(?!{_HOLDER})\.")


def unwrap(device: dict[str, Any]) -> None:
    """Shortens the names in what the planner's report says of a device, in place."""
    peak, top, alternatives = device["peak"], device["top_blocks"], device["alternatives"]
    lines = (line for text in peak["names"] for line in text.split("\n"))
    shared = _ambiguous([*device["layers"], *peak["name"], *lines])

    def brief(text: str) -> str:
        return "\n".join(_brief(line, shared) for line in text.split("\n"))

    device["layers"] = [brief(layer) for layer in device["layers"]]
    unused = device.get("unused") or {"name": []}
    for table, column in ((peak, "name"), (peak, "names"), (top, "name"), (unused, "name"), (alternatives, "layers")):
        table[column] = [brief(text) for text in table[column]]


def _brief(name: str, shared: set[str]) -> str:
    found = _WRAPPED.match(name)
    if found is None or (found["number"] or "") in shared:
        return name
    return " ".join(part for part in (found["number"], name[found.end() :]) if part)


def _ambiguous(names: Iterable[str]) -> set[str]:
    """Numbers under which models of different classes are wrapped: these keep their long names."""
    roots: dict[str, set[str]] = {}
    for name in names:
        found = _WRAPPED.match(name)
        if found is not None:
            roots.setdefault(found["number"] or "", set()).add(found["root"])
    return {number for number, classes in roots.items() if len(classes) > 1}
