"""`stalloc run`: a training script under stalloc, in this process."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from stalloc.core import config, fit_files, sizes
from stalloc.core.variables import read_settings
from stalloc.train import install, process, runner
from stalloc.train.fake import unknown

EXAMPLES = (
    "run --fit train.py --epochs 3",
    "run --auto train.py --epochs 3",
    "run --mode Trace --dir run1 -m package.train",
)

_EPILOG = """
Give stalloc's own options before SCRIPT; everything after it belongs to the script. Under a launcher every worker
runs it:  torchrun --nproc-per-node 8 --no-python stalloc run --mode Trace --dir run1 pretrain.py ...
"""
_OPTIONS_WITH_VALUE = ("--mode", "--dir", "--device", "--assume", "--config")
_CARD = 0  # --fit without a size
_LEAST_LIMIT = 1 << 20  # bytes that the library takes for a limit
_FAKE_ITERATIONS = "4"  # a plan needs three that are alike, after a first one


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    parser.usage = (
        "stalloc run [--auto | --mode MODE | --fit [SIZE]] [--dir DIR] [--device DEVICE] [--config FILE] "
        "[--fake [--assume VALUES]] (SCRIPT | -m MODULE) [ARGUMENT ...]"
    )
    parser.epilog = _EPILOG
    parser.add_argument(
        "--mode",
        type=_mode,
        help="run in mode Torch (report only), Auto, Trace or Alloc; default: STALLOC_MODE, else Torch",
    )
    parser.add_argument("--auto", dest="mode", action="store_const", const=config.AUTO, help="run in mode Auto")
    parser.add_argument(
        "--fit",
        metavar="SIZE",
        nargs="?",
        const=_CARD,
        type=sizes.parse_some,
        help="make the program fit SIZE, as 80G, and run fast (default: the GPU's memory): a process of its "
        "own traces its first iterations. Then modules are recomputed or offloaded, and the micro-batch is set where "
        "the framework takes one. The choice is kept for the next start. Implies --auto",
    )
    parser.add_argument("--dir", help="keep traces and plans in this directory; default: STALLOC_MODEL_INFO_PATH")
    parser.add_argument(
        "--device",
        choices=config.DEVICES,
        help="serve the memory of this device; auto takes CUDA if there is a GPU; default: STALLOC_DEVICE",
    )
    parser.add_argument(
        "--config",
        metavar="FILE",
        type=Path,
        help='read settings: {"mode": "Trace", "trace_steps": "2:5"}, the STALLOC_* variables in lower '
        "case, as JSON or (.yaml) YAML; variables that are set, and options, overrule them",
    )
    parser.add_argument(
        "--fake",
        action="store_true",
        help="trace without a device and without its memory: tensors of --device (default: a GPU) are fake, and the "
        f"program ends after STALLOC_TRACE_STEPS iterations (default {_FAKE_ITERATIONS})",
    )
    parser.add_argument(
        "--assume",
        metavar="VALUES",
        help="let the program read these values from fake tensors (--fake), as in int=4096,bool=0,nonzero=1/16 "
        "(nonzero: the true part of a mask; equal: the true part of a mask made by ==; unique: how many values differ)",
    )
    parser.set_defaults(parser=parser)


def _mode(text: str) -> str:
    try:
        return config.parse_mode(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def split(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Cuts `run [options] PROGRAM …` into our words and the program with its arguments."""
    position = 1
    while position < len(words):
        word = words[position]
        if word == "--":
            return list(words[:position]), list(words[position + 1 :])
        if word == "-m" or not word.startswith("-"):
            break
        if word == "--fit":
            position += 2 if _is_size(words[position + 1 : position + 2]) else 1
            continue
        position += 2 if word in _OPTIONS_WITH_VALUE else 1
    return list(words[:position]), list(words[position:])


def _is_size(following: Sequence[str]) -> bool:
    """What stands after --fit: a size, or what was meant for one; else the program."""
    return bool(following) and following[0][:1].isdigit() and not os.path.exists(following[0])


def run(arguments: argparse.Namespace) -> int:
    program: list[str] = arguments.program
    if not program or program == ["-m"]:
        arguments.parser.error("a SCRIPT or -m MODULE is needed")
    try:
        _set_variables(arguments)
    except (OSError, ValueError) as error:
        print(f"stalloc run: {error}", file=sys.stderr)
        return 2
    is_module = program[0] == "-m"
    if not is_module and not os.path.exists(program[0]):
        print(f"stalloc run: no such script: {program[0]!r}", file=sys.stderr)
        return 2
    if arguments.fit is not None:
        status = _fit(arguments, is_module)
        if status != 0:
            return status
    if is_module:
        runner.prepare_module(program[1], program[2:])
    else:
        runner.prepare_script(program[0], program[1:])
    status = _activate(is_module, program)
    if status != 0:
        return status
    return runner.run_module(program[1]) if is_module else runner.run_script(program[0])


def _prepare_fake(arguments: argparse.Namespace) -> None:
    if not arguments.fake:
        arguments.parser.error("--assume is for --fake")
    if arguments.mode not in (None, config.TRACE):
        arguments.parser.error(f"--fake is for --mode Trace, which it implies: {arguments.mode}")
    if arguments.assume is not None:
        try:
            unknown.parse_assumptions(arguments.assume)
        except ValueError as error:
            arguments.parser.error(f"--assume: {error}")
        os.environ["STALLOC_FAKE_ASSUME"] = arguments.assume
    os.environ["STALLOC_MODE"] = config.TRACE
    os.environ["STALLOC_TRACE_FAKE"] = "1"
    os.environ.setdefault("STALLOC_TRACE_STEPS", _FAKE_ITERATIONS)


def _set_variables(arguments: argparse.Namespace) -> None:
    """What options say is left in the environment. OSError, ValueError: of the file of settings."""
    if arguments.config is not None:
        for variable, value in read_settings(arguments.config).items():
            os.environ.setdefault(variable, value)
    default = config.TORCH if arguments.fit is None else config.AUTO
    os.environ["STALLOC_MODE"] = arguments.mode or os.environ.get("STALLOC_MODE") or default
    if arguments.dir is not None:
        os.environ["STALLOC_MODEL_INFO_PATH"] = arguments.dir
    if arguments.device is not None:
        os.environ["STALLOC_DEVICE"] = arguments.device
    if arguments.fake or arguments.assume is not None:
        _prepare_fake(arguments)


def _fit(arguments: argparse.Namespace, is_module: bool) -> int:
    """Names the choice in STALLOC_FIT; else the exit code. It is made by tools, of which this process knows nothing."""
    program = arguments.program
    if arguments.fake:
        arguments.parser.error("--fit trains, and --fake does not")
    if os.environ["STALLOC_MODE"].lower() != config.AUTO.lower():
        arguments.parser.error(f"--fit is for --mode Auto, which it implies: {os.environ['STALLOC_MODE']}")
    if process.is_launcher("" if is_module else program[0], program[1] if is_module else None):
        name = program[1] if is_module else program[0]
        arguments.parser.error(f"{name} starts others, and --fit is for each of them: {name} ... stalloc run --fit ...")
    made: tuple[int, str] = arguments.make_choice(program, arguments.fit or None)
    status, file = made
    os.environ[fit_files.FIT] = file
    is_limited = os.environ.get("STALLOC_DEVICE") == "cpu" and bool(os.environ.get("STALLOC_MEMORY_LIMIT"))
    if status == 0 and arguments.fit != _CARD and not is_limited:  # the heap has that limit, too
        os.environ[fit_files.HELD_LIMIT] = str(max(arguments.fit, _LEAST_LIMIT))
    return status


def _activate(is_module: bool, program: list[str]) -> int:
    if process.is_launcher("" if is_module else program[0], program[1] if is_module else None):
        process.deny()  # its workers inherit the environment
        return 0
    try:
        install.activate()
    except ValueError as error:
        print(f"stalloc run: {error}", file=sys.stderr)
        return 2
    except RuntimeError as error:
        print(f"stalloc run: {error}", file=sys.stderr)
        return 1
    return 0
