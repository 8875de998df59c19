"""Runs a program of megatron-core on a machine without a GPU:  example_on_cpu.py PROGRAM [ARGUMENT ...]"""

import cuda_on_cpu  # isort: skip
import runpy
import sys

import torch
from megatron.core.tensor_parallel import random


class Stream(cuda_on_cpu.Nothing):
    def is_capturing(self) -> bool:
        return False


_ACCELERATOR = {
    "is_available": True,
    "device_count": 1,
    "current_device_index": 0,
    "set_device_index": None,
    "current_stream": Stream(),
    "synchronize": None,
}
for name, value in _ACCELERATOR.items():  # torch's newer name of what torch.cuda has
    setattr(torch.accelerator, name, lambda *_, value=value, **__: value)
random._get_cuda_rng_state = lambda *_, **__: torch.get_rng_state()
random._set_cuda_rng_state = lambda state, *_, **__: torch.set_rng_state(state)
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
