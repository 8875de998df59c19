"""Runs a program of megatron-core on a machine without a GPU:  example_on_cpu.py PROGRAM [ARGUMENT ...]"""

import cuda_on_cpu  # isort: skip  # noqa: F401
import runpy
import sys

import torch
from megatron.core.tensor_parallel import random

random._get_cuda_rng_state = lambda *_, **__: torch.get_rng_state()
random._set_cuda_rng_state = lambda state, *_, **__: torch.set_rng_state(state)
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
