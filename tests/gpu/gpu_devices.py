"""The GPUs that this process and its children may use, told without initialising CUDA."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping


def visible_devices(environment: Mapping[str, str] = os.environ) -> list[str]:
    """Names for CUDA_VISIBLE_DEVICES, in torch's order. Empty where there is no GPU, or no driver that says so."""
    chosen = environment.get("CUDA_VISIBLE_DEVICES")
    if chosen is not None:
        names = [name.strip() for name in chosen.split(",")]
        return [name for name in names if name and name != "-1"]
    query = ["nvidia-smi", "--query-gpu=index", "--format=csv,noheader"]
    try:
        listed = subprocess.run(query, capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return listed.stdout.split() if listed.returncode == 0 else []
