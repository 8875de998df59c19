import os


def report_memory(name, process_group=None):
    if os.environ.get("FAKE_PLUGGABLE"):
        raise RuntimeError("CUDAPluggableAllocator does not yet support getDeviceStats.")
    print(f"[Rank 0] {name} memory (MB) | allocated: 1.00", flush=True)
