"""bench/megatron/pretrain_mock.py on a machine without a GPU."""

import cuda_on_cpu  # isort: skip
import os
import runpy
import sys
from pathlib import Path

sys.path[0] = str(Path(os.environ["STALLOC_ROOT"]) / "bench" / "megatron")
assert cuda_on_cpu.CPU.type == "cpu"
runpy.run_path(os.path.join(sys.path[0], "pretrain_mock.py"), run_name="__main__")
