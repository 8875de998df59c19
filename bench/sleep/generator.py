"""A generator: weights that are kept and a cache that is dropped, as of an inference engine. Obeys lines (parts.py).

generator.py DEVICE WIDTH LAYERS CACHE_BYTES
"""

from __future__ import annotations

import sys
import time
from functools import partial
from typing import Any

import torch
from parts import obey, sleep, synchronize, wake

import stalloc

device, width, layers, cache_bytes = sys.argv[1], *map(int, sys.argv[2:])

with stalloc.region("weights"):
    torch.manual_seed(5)
    weights = [torch.randn((width, width), device=device) / width**0.5 for _ in range(layers)]
with stalloc.region("kv_cache", keep=False):
    cache = torch.zeros(cache_bytes // 4, device=device)


def generate(tokens: int) -> dict[str, Any]:
    begin = time.perf_counter()
    with torch.no_grad():
        cache.zero_()  # what is dropped has no value
        state = torch.ones((16, width), device=device)
        for i in range(tokens):
            for weight in weights:
                state = torch.tanh(state @ weight)
            cache[i % cache.numel()] = state[0, 0]
        total = float(state.double().sum().item())
    synchronize(device)
    return {"seconds": time.perf_counter() - begin, "sum": total.hex()}


obey({"generate": generate, "sleep": partial(sleep, device), "wake": partial(wake, device)})
