"""What the memory buys: for each program and allocator the fastest configuration that fits in the card, and its speed.

    python bench/worth/worth.py lora experts --card 79G --json worth.json     # one GPU, one allocator after the other
    python bench/worth/worth.py fsdp2-packed --devices 0,1 --json worth.json  # again with the file: rows in it are kept
    python bench/worth/worth.py --size toy --device cpu --card 60M            # on a CPU: nothing runs out of memory

Each program is traced twice, the second time with half the tokens; from these `stalloc fit` proposes what would be
fastest under an allocator, which is attempted in a fresh process (search.py: the same for native, expandable_segments
and stalloc, which is traced, planned and run from its plan). What is fastest under any of them is then attempted under
the others, too. All make the same steps, with the same rows. The JSON is written anew after each attempt: a run that
was ended goes on where it was. Megatron-LM's row is what bench/megatron/fit.py --card has left (--megatron fit.json).
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
import traceback
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "card"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from kinds import KINDS
from known import Known
from launch import Launcher
from occupied import parse_bytes
from row import CONTENDERS, Row
from worth_table import ALLOCATORS, hand_table, megatron_row, table


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs", nargs="*", metavar="PROGRAM", help=f"of {', '.join(KINDS)} (default: all)")
    parser.add_argument("--size", choices=["real", "toy"], default="real")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--devices", default="0", help="GPUs, as 0,1")
    parser.add_argument("--card", type=parse_bytes, default=79 << 30, help="its memory (default 79G: an 80 GB card's)")
    parser.add_argument(
        "--allocators",
        nargs="+",
        choices=CONTENDERS,
        default=list(ALLOCATORS),
        help="and what else is compared (default: native, expandable and stalloc)",
    )
    parser.add_argument("--by-hand", action="store_true", help="compare all contenders: see README.md")
    parser.add_argument("--attempts", type=int, default=2, help="of each allocator's proposals, at most")
    parser.add_argument("--steps", type=int, default=16, help="of an attempt; the first half does not count")
    parser.add_argument(
        "--rounds", type=int, default=0, help="train the best of all once more in N rounds, alternately"
    )
    parser.add_argument("--time-limit", type=float, default=150, help="seconds of a process")
    parser.add_argument("--row-seconds", type=float, default=300, help="after which a program gets no more attempts")
    parser.add_argument("--budget-s", type=float, default=1e9, metavar="N", help="begin no attempt after N seconds")
    parser.add_argument(
        "--directory",
        type=Path,
        help="for traces and plans (default: a temporary one); traces in it are not made again",
    )
    parser.add_argument("--megatron", type=Path, metavar="FIT_JSON", help="bench/megatron/fit.py's, as one more row")
    parser.add_argument("--json", type=Path, help="write all results here")
    arguments = parser.parse_args()
    arguments.until = time.monotonic() + arguments.budget_s
    if arguments.by_hand:
        arguments.allocators = list(CONTENDERS)
    unknown = sorted(set(arguments.programs) - set(KINDS))
    if unknown:
        parser.error(f"there is no program {', '.join(unknown)}; there are {', '.join(KINDS)}")
    return arguments


def make_rows(chosen: argparse.Namespace, known: Known, directory: Path) -> bool:
    """Those that are not known; what fails is that row, and the others are made all the same. Whether one failed."""
    launcher, failed = Launcher(chosen, directory), False
    for program in chosen.programs or list(KINDS):
        if known.row(program) is not None:
            continue
        try:
            known.add_row(Row(chosen, program, directory, known, launcher).measure())
        except Exception as error:
            traceback.print_exception(error)
            failed = True
            known.add_row({"program": program, "error": str(error)})
            print(f"worth: {program}: {error}", file=sys.stderr, flush=True)
        print(table(known.rows()), flush=True)
        print(hand_table(known.rows()), flush=True)
    return failed


def main() -> int:
    chosen = parse_arguments()
    conditions = {"size": chosen.size, "device": chosen.device, "card_bytes": chosen.card, "steps": chosen.steps}
    known = Known(chosen.json, conditions)
    if chosen.megatron:
        known.add_row(megatron_row(json.loads(chosen.megatron.read_text())))
    with tempfile.TemporaryDirectory(prefix="stalloc-worth-") as temporary:
        failed = make_rows(chosen, known, (chosen.directory or Path(temporary)).resolve())
    print(table(known.rows()), flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
