"""bench/megatron/pretrain_mock.py on a machine without a GPU."""

import os

os.environ["TORCHDYNAMO_DISABLE"] = "1"  # compiling dozens of small functions for the CPU takes minutes
import cuda_on_cpu  # isort: skip
import runpy
import sys
from pathlib import Path

sys.path[0] = str(Path(os.environ["STALLOC_ROOT"]) / "bench" / "megatron")
assert cuda_on_cpu.CPU.type == "cpu"
runpy.run_path(os.path.join(sys.path[0], "pretrain_mock.py"), run_name="__main__")
