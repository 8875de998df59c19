"""What tracing modules costs: steps of one traced training on a CPU, with and without the marks of modules, in turns.

    STALLOC_MODE=Trace STALLOC_TRACE_MODULES=1 STALLOC_DEVICE=cpu STALLOC_MODEL_INFO_PATH=DIR \\
        stalloc run bench/module_marks.py --width 256 --tokens 768

Both steps of a pair meet the same speed of the machine, and their order changes. Told are the median over the pairs of
the ratio of their processor times, its quartiles, and the time a mark adds. Hidden sizes set how long a step is; the
number of modules, and so of marks, stays.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import time
from typing import Any

import torch

from stalloc._marking._modules import ModuleMarks


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--width", type=int, default=256, help="of the hidden state")
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--tokens", type=int, default=768, help="of a step")
    parser.add_argument("--pairs", type=int, default=60)
    parser.add_argument("--json", action="store_true", help="as JSON")
    return parser.parse_args()


class Step:
    """One step of training, timed."""

    def __init__(self, width: int, layers: int, tokens: int) -> None:
        layer = torch.nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0.0, batch_first=True, norm_first=True)
        self.model = torch.nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self._optimizer = torch.optim.AdamW(self.model.parameters())
        self._input = torch.randn(4, tokens // 4, width)

    def seconds(self) -> float:
        begin = time.process_time()
        self.model(self._input).square().mean().backward()
        self._optimizer.step()
        self._optimizer.zero_grad()
        return time.process_time() - begin


def measure(step: Step, marks: ModuleMarks, pairs: int) -> list[tuple[float, float]]:
    """Seconds with and without marks, of each pair."""
    found = []
    for pair in range(pairs):
        times = {}
        for marked in (True, False) if pair % 2 else (False, True):
            if marked:
                marks.install(torch)
            times[marked] = step.seconds()
            if marked:
                marks.remove()
        found.append((times[True], times[False]))
    return found


def main() -> int:
    arguments = parse_arguments()
    installed = [thing for thing in gc.get_objects() if isinstance(thing, ModuleMarks)]
    if len(installed) != 1:
        print("bench/module_marks.py: run it with STALLOC_MODE=Trace STALLOC_TRACE_MODULES=1")
        return 1
    installed[0].remove()
    torch.manual_seed(1)
    step = Step(arguments.width, arguments.layers, arguments.tokens)
    for _ in range(3):
        step.seconds()
    pairs = measure(step, installed[0], arguments.pairs)
    ratios = sorted(marked / bare for marked, bare in pairs)
    told: dict[str, Any] = {
        "modules": sum(1 for _ in step.model.modules()),
        "step_ms": 1000 * statistics.median(bare for _, bare in pairs),
        "added_ms": 1000 * statistics.median(marked - bare for marked, bare in pairs),
        "ratio": statistics.median(ratios),
        "quartiles": [ratios[len(ratios) // 4], ratios[3 * len(ratios) // 4]],
    }
    if arguments.json:
        print(json.dumps(told))
        return 0
    low, high = told["quartiles"]
    print(
        f"{told['modules']} modules, a step of {told['step_ms']:.1f} ms: {told['added_ms']:.1f} ms more, "
        f"x {told['ratio']:.3f} ({low:.3f} to {high:.3f})"
    )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
