"""Two figures of any training program, which stays as it is: its steps, and the least memory in which it trains.

step    On a free card: the program's steps under stalloc over those under PyTorch's native allocator and under
        expandable_segments:True. All processes are alive at once on one GPU; each makes one step while the others wait.
least   For each allocator the least memory in which the program trains with steps at most 5 % longer than its own on
        the free card, over its live peak; or, with --caps, what its steps take in memory capped there.

A step ends with a step of the program's first optimizer. Steps of different runs are compared by their index: the
program must request the same in each run (seed it where sizes are random); other data in tensors of the same sizes does
not matter. README.md says what is counted.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from allocators import ALLOCATORS, Allocators, CardError
from card_document import Document
from least_memory import Least
from step_figure import measure

OF_CARD = (90.0, 95.0, 97.0, 98.0, 99.0, 99.5)
EXAMPLES = """examples:
  python bench/card/card.py step --steps 60 --json step.json -- train.py --batch 8
  python bench/card/card.py step --alone --steps 110 -- train.py          # with seconds to step 100
  python bench/card/card.py step --one-core --steps 100 -- train.py       # where the host bounds the steps
  python bench/card/card.py step --mode auto -- -m package.train --layers 4
  python bench/card/card.py step --device cpu --steps 20 -- examples/plain_loop.py
  python bench/card/card.py least --steps 40 --json least.json -- train.py
  python bench/card/card.py least --caps 1.10 1.05 1.02 1.01 -- train.py
  python bench/card/card.py least --of-card --budget-s 400 --steps 20 --json cliff.json -- train.py
  python bench/card/card.py step --optimizer-steps 5 -- train_gan.py      # five steps of the first optimizer a step
"""


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, epilog=EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    figures = parser.add_subparsers(dest="figure", required=True)
    step = _subparser(figures, "step", "steps on a free card", steps=60)
    step.add_argument(
        "--alone", action="store_true", help="run one process after the other, and print the seconds to step 100"
    )
    step.add_argument(
        "--one-core",
        action="store_true",
        help="run the programs' threads of all processes on one core of the host, so that none has a faster one",
    )
    smallest = _subparser(figures, "least", "the least memory, by capping the GPU", steps=40)
    smallest.add_argument(
        "--resolution", type=float, default=0.5, help="the bisection ends at this width, percent of the live peak"
    )
    smallest.add_argument(
        "--step-ratio",
        type=float,
        default=1.05,
        help="an attempt trains if its mean step is at most this times the free card's",
    )
    smallest.add_argument(
        "--caps",
        type=float,
        nargs="+",
        default=[],
        metavar="RATIO",
        help="try these caps (times the live peak) instead of bisecting; put -- before PROGRAM",
    )
    smallest.add_argument(
        "--of-card",
        type=float,
        nargs="*",
        metavar="PERCENT",
        help="try caps of which the live peak is so many percent (default 90 95 97 98 99 99.5); a smaller one than ran "
        "out of memory is not tried",
    )
    smallest.add_argument("--budget-s", type=float, metavar="N", help="after N seconds, no further cap is tried")
    chosen = parser.parse_args()
    if chosen.figure == "least" and chosen.of_card is not None:
        chosen.caps = [100 / percent for percent in sorted(chosen.of_card or OF_CARD)]
    if chosen.program[:1] == ["--"]:
        del chosen.program[0]
    if not chosen.program or chosen.program == ["-m"]:
        parser.error("a PROGRAM is needed, or -m and a module, after --")
    return chosen


def _subparser(figures: Any, name: str, text: str, steps: int) -> argparse.ArgumentParser:
    """Of a figure; `figures`: what add_subparsers has returned."""
    parser: argparse.ArgumentParser = figures.add_parser(
        name, help=text, description=text, epilog=EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=steps, help=f"end the program after N steps (default {steps})")
    parser.add_argument("--warm-up", type=int, default=10, help="steps that do not count (default 10)")
    parser.add_argument("--optimizer-steps", type=int, default=1, help="the first optimizer makes N steps in each step")
    parser.add_argument("--allocators", nargs="+", choices=ALLOCATORS, default=list(ALLOCATORS))
    parser.add_argument("--mode", choices=["alloc", "auto"], default="alloc", help="stalloc's mode (default alloc)")
    parser.add_argument("--trace-steps", type=int, default=6, help="with --mode alloc, trace N steps (default 6)")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="STALLOC_NAME=VALUE",
        help="set a variable for all of stalloc's processes",
    )
    parser.add_argument("--device", choices=["auto", "cuda", "cpu"], default="auto")
    parser.add_argument("--gpu", help="CUDA_VISIBLE_DEVICES of all processes")
    parser.add_argument(
        "--time-limit", type=float, default=1800.0, help="seconds after which a process is ended (default 1800)"
    )
    parser.add_argument("--directory", type=Path, help="directory of logs, traces and plans (default: a temporary one)")
    parser.add_argument("--json", type=Path, help="write the results here, anew after each attempt")
    parser.add_argument("program", nargs=argparse.REMAINDER, metavar="PROGRAM", help="and its arguments, after --")
    return parser


def device_of(chosen: str) -> str:
    """CUDA where there is a GPU. It is queried without a context, which would take memory of the card."""
    if chosen != "auto":
        return chosen
    name, before = "PYTORCH_NVML_BASED_CUDA_CHECK", dict(os.environ)
    os.environ[name] = "1"
    import torch

    found = "cuda" if torch.cuda.is_available() else "cpu"
    if name not in before:
        del os.environ[name]  # the programs do not inherit it
    return found


def check(chosen: argparse.Namespace) -> None:
    """CardError: the request cannot be met."""
    if chosen.warm_up >= chosen.steps:
        raise CardError(f"--steps {chosen.steps} leaves nothing after --warm-up {chosen.warm_up}")
    if chosen.figure == "least" and chosen.device == "cpu":
        raise CardError("least needs a GPU, whose memory it caps; on a CPU nothing caps native and expandable_segments")
    if chosen.program[0] != "-m" and not Path(chosen.program[0]).exists():
        raise CardError(f"no such program: {chosen.program[0]}")


def main() -> int:
    chosen = parse_arguments()
    chosen.device = device_of(chosen.device)
    try:
        check(chosen)
        document = Document(chosen)
        with tempfile.TemporaryDirectory(prefix="stalloc-card-") as temporary:
            directory = (chosen.directory or Path(temporary)).resolve()
            directory.mkdir(parents=True, exist_ok=True)
            allocators = Allocators(chosen, directory)
            if chosen.figure == "step":
                return measure(chosen, allocators, document)
            return Least(chosen, allocators, document).measure()
    except CardError as error:
        print(f"card: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
