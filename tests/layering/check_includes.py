"""Fails on an include against the order of the layers, and on one of what a layer must not know.

Each layer may include itself and what stands above it in ORDERS; ACROSS has the exceptions. The planner knows neither
CUDA nor torch; what a training process loads knows neither Abseil nor protobuf's runtime.

    python3 tests/layering/check_includes.py [ROOT]
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

# Lowest first. A layer includes itself and earlier ones of its own or the shared group.
SHARED = ["proto/model", "proto/codec"]
ORDERS = {
    "allocator": [
        "allocator/base",
        "allocator/graphs",
        "allocator/driver",
        "allocator/arena",
        "allocator/engine/bytes",
        "allocator/engine/order",
        "allocator/engine/follow",
        "allocator/engine/place",
        "allocator/engine",
        "allocator/backing",
        "allocator/sleep",
        "allocator/record",
        "allocator/runtime",
        "allocator/capi",
        "allocator/torch",
    ],
    "planner": [
        "planner/packing/problem",
        "planner/packing/search",
        "planner/packing/finish",
        "planner/packing",
        "planner/synth",
        "planner/analysis",
        "planner/trial",
        "planner/facts",
        "planner/whatif",
        "planner/report",
        "planner/cli",
    ],
}
# The trial serves traced iterations with the engine itself, and chunks of no memory behind it.
_ALLOCATOR = ORDERS["allocator"]
TRIED = _ALLOCATOR[: _ALLOCATOR.index("allocator/backing") + 1]
ACROSS = {"planner/trial": TRIED}
# Headers of other projects, and the only folders that may include them.
FOREIGN = {
    r"^(c10|torch|ATen)/": ["allocator/torch"],
    r"^(cuda|cuda_runtime|cuda_runtime_api|driver_types)\.h$": ["allocator/driver", "allocator/torch"],
    r"^absl/": ["planner", "proto/codec"],
    r"^(google/protobuf/|proto/[a-z]+\.pb\.h$)": ["proto/codec"],
    r"^protozero/": ["proto/codec"],
}
INCLUDE = re.compile(r'^\s*#\s*include\s+[<"]([^>"]+)[>"]', re.MULTILINE)
SOURCES = {".h", ".cc", ".cu"}


def layer_of(path: str) -> str | None:
    """The layer that a path from the root belongs to, or None for a path outside the layers."""
    for layer in [*SHARED, *ORDERS["allocator"], *ORDERS["planner"]]:
        if path.startswith(layer + "/"):
            return layer
    return None


def allowed_layers(layer: str) -> list[str]:
    if layer in SHARED:
        return SHARED[: SHARED.index(layer) + 1]
    order = ORDERS[layer.split("/", maxsplit=1)[0]]
    return SHARED + order[: order.index(layer) + 1] + ACROSS.get(layer, [])


def violations_of(path: str, text: str) -> list[str]:
    """One sentence for each include of `path` that its layer may not have."""
    layer = layer_of(path)
    if layer is None:
        return []
    found = []
    for target in INCLUDE.findall(text):
        for pattern, folders in FOREIGN.items():
            if re.search(pattern, target) and not any(path.startswith(folder + "/") for folder in folders):
                found.append(f"{path}: includes {target}, which only {', '.join(folders)} may")
        target_layer = layer_of(target)
        if target_layer is not None and target_layer not in allowed_layers(layer):
            found.append(f"{path}: layer {layer} includes {target} of the later layer {target_layer}")
        if target.startswith(("tests/", "bench/", "patches/")):
            found.append(f"{path}: includes {target}, which is no layer")
    return found


def main(root: Path) -> int:
    tops = [root / top for top in ("proto", "allocator", "planner")]
    files = [p for top in tops for p in sorted(top.rglob("*")) if p.suffix in SOURCES]
    if not files:
        print(f"check_includes: no sources below {root}", file=sys.stderr)
        return 1
    found = [line for p in files for line in violations_of(p.relative_to(root).as_posix(), p.read_text())]
    for line in found:
        print(line, file=sys.stderr)
    print(f"check_includes: {len(files)} files, {len(found)} violations")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parents[2]))
