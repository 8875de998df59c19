"""Imported by train.py before all else: when the run begins, and that one rank alone is no distributed run."""

import os
import time

BEGIN = time.perf_counter()  # seconds

if os.environ.get("WORLD_SIZE") == "1":  # frameworks would make a process group of one
    for _name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        os.environ.pop(_name, None)
