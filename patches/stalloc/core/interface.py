"""The part of torch's C++ interface that the adapter is compiled into, as one number.

The adapter derives from torch's classes, calls their virtual functions and reads their members. Every torch has their
headers: the build keeps a fingerprint of what it saw, and at load the torch that is there must have the same. Equal
version numbers are not enough: vendors ship snapshots of a minor version, and a patch release may add a function.

Imports nothing of stalloc or torch: the build loads this file by its path (allocator/torch/find_torch.py).
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import NamedTuple, Optional, Union

# Minor versions of torch that adapters are built for.
OLDEST, NEWEST = (2, 9), (2, 15)
SUPPORTED = f"{OLDEST[0]}.{OLDEST[1]} to {NEWEST[0]}.{NEWEST[1]}"

# Whose classes the adapter derives from, calls virtually, holds by value or looks into.
HEADERS = (
    "ATen/core/alias_info.h",
    "ATen/core/function_schema.h",
    "ATen/core/ivalue.h",
    "ATen/core/ivalue_inl.h",
    "ATen/core/jit_type_base.h",
    "ATen/detail/AcceleratorHooksInterface.h",
    "ATen/detail/CUDAHooksInterface.h",
    "ATen/record_function.h",
    "c10/core/Allocator.h",
    "c10/core/AllocatorConfig.h",
    "c10/core/CPUAllocator.h",
    "c10/core/CachingDeviceAllocator.h",
    "c10/core/Device.h",
    "c10/core/DeviceType.h",
    "c10/core/StorageImpl.h",
    "c10/core/Stream.h",
    "c10/core/TensorImpl.h",
    "c10/core/impl/DeviceGuardImplInterface.h",
    "c10/core/impl/GPUTrace.h",
    "c10/core/impl/PyInterpreter.h",
    "c10/cuda/CUDAAllocatorConfig.h",
    "c10/cuda/CUDACachingAllocator.h",
    "c10/cuda/CUDAGraphsC10Utils.h",
    "c10/cuda/CUDAStream.h",
    "c10/util/ApproximateClock.h",
    "c10/util/Exception.h",
    "c10/util/UniqueVoidPtr.h",
    "c10/util/flat_hash_map.h",
    "c10/util/intrusive_ptr.h",
)
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_SPACE = re.compile(r"\s+")
_CLAIM = re.compile(rb"stalloc adapter for torch (\S+), interface ([0-9a-f]{64})")


class Claim(NamedTuple):
    """What a library of ours was compiled against."""

    torch: str
    interface: str


def fingerprint(include: Union[str, Path]) -> Optional[str]:
    """The hash of the headers in torch's `include` directory, without their comments and spaces; None where there are
    none.

    A header that this torch does not have counts as such.
    """
    digest = hashlib.sha256()
    found = False
    for name in HEADERS:
        try:
            text = (Path(include) / name).read_text(encoding="utf-8", errors="replace")
        except OSError:
            text = ""
        found = found or bool(text)
        digest.update(f"{name}\0{_SPACE.sub('', _COMMENT.sub('', text))}\0".encode())
    return digest.hexdigest() if found else None


def claim_of(library: Path) -> Optional[Claim]:
    """What the library was compiled against, read from its bytes: one for another torch may not be loadable at all."""
    found = _CLAIM.search(library.read_bytes())
    return None if found is None else Claim(found.group(1).decode(), found.group(2).decode())


def fits(claim: Claim, running: str, include: Union[str, Path]) -> bool:
    """True where the torch that runs has the interface; where its headers were taken away, where it is that release."""
    if _minor(claim.torch) != _minor(running):
        return False
    here = fingerprint(include)
    return here == claim.interface if here is not None else _release(claim.torch) == _release(running)


def supported(version: str) -> bool:
    """True of a torch whose minor version adapters are built for, whatever its headers have."""
    numbers = [int(part) for part in _minor(version) if part.isdecimal()]
    return len(numbers) == 2 and OLDEST <= (numbers[0], numbers[1]) <= NEWEST


def _release(version: str) -> str:
    """ "2.11.0" of "2.11.0+cu130"."""
    return version.partition("+")[0]


def _minor(version: str) -> list[str]:
    return _release(version).split(".")[:2]
