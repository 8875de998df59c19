"""Runs torch_memory_saver's own examples over `stalloc.memory_saver`, each in a process under STALLOC_MODE=Auto.

    python tests/gpu/memory_saver_examples.py CHECKOUT [NAME ...]

CHECKOUT: a checkout of that project, whose test/examples are run with the module's name standing for ours. Examples
that look into its library's functions, or need what docs/sleep.md says there is not, are not run unless they are named.
Needs a GPU. Exit code 1 where one fails.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
NAMES = ("simple", "cpu_backup", "training_engine")
_ALIAS = """
import runpy, sys, types
import torch
import stalloc.memory_saver as ours
ours.torch_memory_saver._ensure_initialized = lambda: None
testing = types.ModuleType("torch_memory_saver.testing_utils")
def get_and_print_gpu_memory(message, gpu_id=0):
    free, total = torch.cuda.mem_get_info(gpu_id)
    print(f"{message}: {(total - free) / 2**30:.2f} GiB")
    return total - free
testing.get_and_print_gpu_memory = get_and_print_gpu_memory
testing.get_device = lambda: "cuda"
testing.empty_cache = torch.cuda.empty_cache
sys.modules["torch_memory_saver"] = ours
sys.modules["torch_memory_saver.testing_utils"] = testing
sys.argv = [sys.argv[1], "preload"]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout", type=Path)
    parser.add_argument("names", nargs="*", default=list(NAMES))
    arguments = parser.parse_args()
    failed = []
    for name in arguments.names:
        script = arguments.checkout / "test" / "examples" / f"{name}.py"
        everything = {"TMS_INIT_ENABLE": "1", "TMS_INIT_ENABLE_CPU_BACKUP": "1"} if name == "training_engine" else {}
        with tempfile.TemporaryDirectory() as directory:
            environment = {
                **os.environ,
                "PYTHONPATH": str(ROOT / "patches"),
                "STALLOC_MODE": "Auto",
                "STALLOC_MODEL_INFO_PATH": directory,
                **everything,
            }
            words = [sys.executable, "-c", f"import stalloc\n{_ALIAS}", str(script)]
            done = subprocess.run(words, env=environment, check=False)
        print(f"{name}: {'fine' if done.returncode == 0 else 'FAILED'}", flush=True)
        if done.returncode != 0:
            failed.append(name)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
