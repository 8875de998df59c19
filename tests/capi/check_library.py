"""Checks what a library exports and needs: stalloc_* alone; no protobuf, no Abseil, no paths of the build machine.

python3 tests/capi/check_library.py LIBRARY [--allow-needed PREFIX ...] [--require SYMBOL ...]
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys

# What every program has: the C and C++ runtime.
SYSTEM = ["libc.so", "libm.so", "libdl.so", "libpthread.so", "librt.so", "libstdc++.so", "libgcc_s.so", "ld-linux"]
FORBIDDEN = ["protobuf", "absl", "protoc"]


def run(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def exported(library: str) -> list[str]:
    return [line.split()[-1] for line in run("nm", "-D", "--defined-only", library).splitlines() if line.strip()]


def dynamic_entries(library: str, tag: str) -> list[str]:
    return re.findall(rf"\({tag}\).*\[(.*)\]", run("readelf", "-d", "-W", library))


def problems(library: str, allowed: list[str], required: list[str]) -> list[str]:
    symbols = exported(library)
    found = [f"exports {name}" for name in symbols if not re.fullmatch(r"stalloc_[a-z0-9_]+", name)]
    found += [f"does not export {name}" for name in required if name not in symbols]
    for needed in dynamic_entries(library, "NEEDED"):
        if any(word in needed for word in FORBIDDEN):
            found.append(f"needs {needed}, which a training process may have in another version")
        elif not needed.startswith(tuple(SYSTEM + allowed)):
            found.append(f"needs {needed}")
    for tag in ("RPATH", "RUNPATH"):
        found += [
            f"has a run path of this machine: {p}" for p in dynamic_entries(library, tag) if not p.startswith("$ORIGIN")
        ]
    # Undefined symbols of protobuf or Abseil would bind to whatever the process has.
    undefined = run("nm", "-D", "--undefined-only", "-C", library)
    found += [
        f"uses {line.split(maxsplit=1)[-1]}"
        for line in undefined.splitlines()
        if re.search(r"google::protobuf|absl::", line)
    ]
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("library")
    parser.add_argument("--allow-needed", nargs="*", default=[], metavar="PREFIX")
    parser.add_argument("--require", nargs="*", default=[], metavar="SYMBOL")
    arguments = parser.parse_args()
    found = problems(arguments.library, arguments.allow_needed, arguments.require)
    for line in found[:20]:
        print(f"{arguments.library}: {line}", file=sys.stderr)
    print(f"check_library: {len(exported(arguments.library))} exports, {len(found)} problems")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
