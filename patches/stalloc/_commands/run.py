"""`stalloc run`: a training script under stalloc, in this process."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from stalloc import _config, _install, _process, _runner

HELP = "run a training script (or -m MODULE) with stalloc's allocator in place"

_EPILOG = """
stalloc's own options stand before SCRIPT; everything behind it belongs to the script. Under a launcher every worker
runs it:  torchrun --nproc-per-node 8 --no-python stalloc run --mode Trace --dir run1 pretrain.py ...
"""
_OPTIONS_WITH_VALUE = ("--mode", "--dir", "--device")


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    parser.usage = "stalloc run [--mode MODE] [--dir DIR] [--device DEVICE] (SCRIPT | -m MODULE) [ARGUMENT ...]"
    parser.epilog = _EPILOG
    parser.add_argument(
        "--mode",
        type=_mode,
        help="Torch (report only), Trace or Alloc; default: STALLOC_MODE, else Torch",
    )
    parser.add_argument("--dir", help="directory of traces and plans; default: STALLOC_MODEL_INFO_PATH")
    parser.add_argument(
        "--device",
        choices=_config.DEVICES,
        help="whose memory: auto takes CUDA where there is a GPU; default: STALLOC_DEVICE",
    )
    parser.set_defaults(parser=parser)


def _mode(text: str) -> str:
    try:
        return _config.parse_mode(text)
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
        position += 2 if word in _OPTIONS_WITH_VALUE else 1
    return list(words[:position]), list(words[position:])


def run(arguments: argparse.Namespace) -> int:
    program: list[str] = arguments.program
    if not program or program == ["-m"]:
        arguments.parser.error("a SCRIPT or -m MODULE is needed")
    os.environ["STALLOC_MODE"] = arguments.mode or os.environ.get("STALLOC_MODE") or _config.TORCH
    if arguments.dir is not None:
        os.environ["STALLOC_MODEL_INFO_PATH"] = arguments.dir
    if arguments.device is not None:
        os.environ["STALLOC_DEVICE"] = arguments.device
    is_module = program[0] == "-m"
    if not is_module and not os.path.exists(program[0]):
        print(f"stalloc run: no such script: {program[0]!r}", file=sys.stderr)
        return 2
    if is_module:
        _runner.prepare_module(program[1], program[2:])
    else:
        _runner.prepare_script(program[0], program[1:])
    status = _activate(is_module, program)
    if status != 0:
        return status
    return _runner.run_module(program[1]) if is_module else _runner.run_script(program[0])


def _activate(is_module: bool, program: list[str]) -> int:
    if _process.is_launcher("" if is_module else program[0], program[1] if is_module else None):
        _process.deny()  # its workers inherit the environment
        return 0
    try:
        _install.activate()
    except ValueError as error:
        print(f"stalloc run: {error}", file=sys.stderr)
        return 2
    except RuntimeError as error:
        print(f"stalloc run: {error}", file=sys.stderr)
        return 1
    return 0
