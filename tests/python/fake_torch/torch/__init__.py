"""As much of torch as installing needs, with a machine that the environment describes. Imports in a millisecond.

FAKE_TORCH_VERSION, FAKE_CUDA=1 (a GPU is there), FAKE_CUDA_INITIALIZED=1.
"""

import os
from importlib.metadata import entry_points

__version__ = os.environ.get("FAKE_TORCH_VERSION", "2.11.0+cu130")

from torch import cuda as cuda
from torch import nn as nn
from torch import optim as optim


class Tensor: ...


def _import_device_backends() -> None:
    """The real one's behaviour, errors included."""
    for backend in entry_points(group="torch.backends"):
        try:
            backend.load()()
        except Exception as error:
            raise RuntimeError(f"Failed to load the backend extension: {backend.name}.") from error


if os.environ.get("TORCH_DEVICE_BACKEND_AUTOLOAD", "1") == "1":
    _import_device_backends()
