import os

from torch.cuda import memory as memory


def is_available() -> bool:
    if os.environ.get("PYTORCH_NVML_BASED_CUDA_CHECK") != "1":
        raise AssertionError("asking without NVML initialises the driver")
    return os.environ.get("FAKE_CUDA") == "1"


def is_initialized() -> bool:
    return os.environ.get("FAKE_CUDA_INITIALIZED") == "1"


def device_count() -> int:
    return 1
