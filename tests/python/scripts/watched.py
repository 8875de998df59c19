"""Writes beyond the end of a block, as a kernel with a wrong index does; prints what the watch has counted."""

from __future__ import annotations

import ctypes
import json

import torch

import stalloc

good = torch.zeros(1000, dtype=torch.uint8)
good.fill_(1)
del good
bad = torch.zeros(1000, dtype=torch.uint8)
ctypes.memset(bad.data_ptr() + 1003, 0x41, 1)
del bad
print(json.dumps(stalloc.stats()["devices"][0]["watch"]))
