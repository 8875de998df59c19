"""What `import stalloc` offers besides marks. Loaded by the first use of one of these names."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Optional, Union

from stalloc.train import fake_trace as _fake_trace
from stalloc.train import install
from stalloc.train.changes import applied
from stalloc.train.sleep import api as _sleep_api
from stalloc.train.sleep import server as _sleep_server
from stalloc.train.sleep.api import Tags
from stalloc.train.sleep.figures import SleepResult


def auto(directory: Union[str, os.PathLike[str], None] = None) -> None:
    """Does in code what STALLOC_MODE=Auto does: the run traces its first iterations and takes a plan up by itself.

    Call it before anything is on the GPU. A mode that the environment sets stands, and this does nothing then.

    Args:
        directory: where the plan is kept for the next start, as STALLOC_MODEL_INFO_PATH; default: the user's cache.
    Raises:
        RuntimeError: CUDA is initialised already, or the allocator could not be put in place.
    """
    install.activate_auto(directory)


def apply(choice: Union[str, os.PathLike[str]], model: Any, optimizer: Optional[Any] = None) -> list[str]:
    """Does to a model what `stalloc fit --output fit.json` chose: recomputes and offloads exactly those modules.

        model = Model()
        stalloc.apply("fit.json", model)     # before it is compiled or sharded

    Changes made earlier are not made again. docs/fit.md describes the changes.

    Args:
        choice: the file.
        model: a torch.nn.Module with the modules of the traced one.
        optimizer: where the choice offloads the optimizer's state.
    Returns:
        The paths of the modules that were changed.
    Raises:
        ValueError: the file is no choice, the model has no such module or one that cannot be changed, or there is no
            optimizer of torch.optim; nothing was changed then.
        OSError: the file cannot be read.
    """
    return applied.apply(choice, model, optimizer)


def recompute(module: Any) -> None:
    """Has a module's forward pass run again in the backward pass, in place of keeping what it makes.

        for layer in model.layers:
            stalloc.recompute(layer)         # before it is compiled or sharded

    It is torch's checkpoint without re-entrance, with the random state of every GPU that the process uses, however the
    module is called. Names, state dictionaries, copies and pickles of the model stay as they were. Twice is as once.

    Args:
        module: a torch.nn.Module.
    Raises:
        TypeError: the module has no forward, or is torch.jit's.
    """
    from stalloc.train.changes import changed  # which imports torch

    changed.change([(module, changed.RECOMPUTE)])


def fake_trace(
    directory: Union[str, os.PathLike[str]], device: str = "cuda", assume: str = ""
) -> AbstractContextManager[Path]:
    """A trace without a device and without its memory: inside, tensors of `device` are torch's fake ones.

        with stalloc.fake_trace("run1") as trace:
            model = Model().cuda()
            for batch in batches: ...        # then: stalloc plan run1; stalloc report run1

    What is made inside must stay inside. One trace a process. Gives the trace's path.

    Args:
        directory: of the run, as STALLOC_MODEL_INFO_PATH.
        device: "cuda", or "cpu": whose tensors are fake.
        assume: values that the program reads from fake tensors, as in "int=4096,bool=0,nonzero=1/16".
    Raises:
        RuntimeError: stalloc is active already; or, from inside, an operator that a fake tensor cannot go through.
        ValueError: a device or an assumption that is not allowed.
    """
    return _fake_trace.fake_trace(directory, device, assume)


def sleep(keep: Tags = None, tags: Tags = None, to: str = "host", device: Any = None) -> SleepResult:
    """Gives the device's memory away: what lives in the arena goes to page-locked memory of the host, or nowhere.

        with stalloc.region("kv_cache", keep=False): cache = ...
        stalloc.sleep()                     # another process may have the memory
        stalloc.wake()                      # the same tensors at the same addresses

    Until the wake nobody may use a tensor that sleeps, and no graph that reads one may be replayed. Tensors may be
    freed. While everything sleeps, requests of 256 KiB or more are errors, but inside `stalloc.outside()`.

    Args:
        keep: names of regions whose bytes are kept, all others' are lost; default: as the regions say, and all else.
        tags: names of regions that sleep, "" for what was allocated in none; default: everything.
        to: "host", or "nothing": no bytes are kept.
        device: an index, "cpu", "cuda:1"; default: all that have an arena.
    Returns:
        bytes and seconds, and with `stays()` what stays on the device and why.
    Raises:
        RuntimeError: there is no arena, a graph is being captured, the host has too little memory, a block is shared
            with another process. Everything is awake then, and as before.
    """
    return _sleep_api.sleep(keep, tags, to, device)


def wake(tags: Tags = None, device: Any = None) -> SleepResult:
    """Brings back what sleeps, or what of it is of those regions; requests are served again.

    Work given to the device afterwards, on any stream, runs after the copies; the host need not wait for them.

    Raises:
        RuntimeError: the device is full, as long as another process has the memory. All sleeps on; call it again.
    """
    return _sleep_api.wake(tags, device)


def region(tag: str, keep: bool = True) -> AbstractContextManager[None]:
    """What this thread allocates inside has a name for `sleep` and `wake`; of nested ones the innermost counts.

    Args:
        tag: the name.
        keep: False: its bytes are dropped by a sleep that does not name what is kept. Under STALLOC_WATCH they read as
            NaN afterwards, until they are written.
    """
    return _sleep_api.region(tag, keep)


def outside() -> AbstractContextManager[None]:
    """What this thread allocates inside is not of the arena: it does not sleep, and can be had while all else does."""
    return _sleep_api.outside()


def serve_sleep(at: str = "boundary") -> Path:
    """From now on `stalloc sleep PID` and `stalloc wake PID` of the same user work; the socket's path.

    Args:
        at: "boundary": orders are carried out between two iterations, where the loop stays until it is woken; "once":
            at once, on a thread of their own. Then the program must see to it that nothing runs.
    """
    return _sleep_server.serve(at)


def reserve_host_memory(size: int, device: Any = None) -> None:
    """Takes `size` bytes of page-locked host memory now; else the first sleep does, which takes longer than to copy.

    Raises:
        RuntimeError: the host has too little.
    """
    _sleep_api.library().reserve_host_pool(_sleep_api.index_of(device), size)


def release_host_memory() -> int:
    """Gives back the host's memory that no sleeping tensor needs; bytes. It is kept from sleep to sleep otherwise."""
    return _sleep_api.library().release_host_pools()
