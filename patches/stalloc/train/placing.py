"""Puts the allocator in place, before CUDA is initialised; mode Auto's with who sees to its plan."""

from __future__ import annotations

import contextlib
import importlib
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Callable, Optional

from stalloc.core import coordinates, log, run_cache
from stalloc.core import library as library_
from stalloc.core.config import Config, ConfigError
from stalloc.core.library import Library, LibraryError, TorchLibrary, UnfitTorchError
from stalloc.core.run_files import Paths, identity
from stalloc.train import process
from stalloc.train.auto import run_choice
from stalloc.train.auto.auto import Auto

TOO_LATE = (
    "CUDA is initialised already, so its allocator cannot be replaced any more. `import stalloc`, or run under "
    "`stalloc run`, before anything that initialises CUDA; importing megatron.training does that."
)

_START, _START_PLAN = "STALLOC_START_PATH", "STALLOC_START_PLAN"
_BAD_VALUE = re.compile(r"[A-Z][A-Z_]+ must be .*; found \"")  # as allocator/runtime/config.cc words it

unfit = False  # no adapter is for this torch, which was said


def find_plan(rank: str) -> None:
    """Where this rank has no plan, that of a rank at the same place of the parallel run."""
    try:
        chosen = coordinates.choose_plan(sys.argv[1:], os.environ, rank)
    except (OSError, ValueError) as error:
        log.warning(f"no other rank's plan was looked for: {error}")
        return
    if chosen is not None:
        os.environ[coordinates.PLAN_RANK] = str(chosen)
        log.debug(f"has no plan of its own, and is served from rank {chosen}'s: the same place, other data")


def _begin_start(torch: Any, rank: int) -> run_choice.Choice:
    module = process.module_of_command(process.command_of_process())
    chosen = run_cache.chosen_directory(os.environ)
    choice = run_choice.begin(os.environ, sys.argv, str(torch.__version__), rank, module)
    os.environ["STALLOC_MODEL_INFO_PATH"] = str(choice.start.run)
    if chosen is None:
        os.environ[run_cache.FOUND] = str(choice.start.run)
    return choice


def install_auto(config: Config, torch: Any) -> tuple[Optional[Library], Optional[Auto]]:
    rank = int(config.rank or 0)
    choice = _begin_start(torch, rank)
    start = choice.start
    installed = False
    try:
        find_plan(config.rank)
        paths = Paths(start, rank, int(os.environ.get(coordinates.PLAN_RANK, rank)))
        taken = identity(paths.plan)
        with _environment(_START, str(start.folder)), _environment(_START_PLAN, choice.trust):  # of this process alone
            library = install_or_go_on(config, torch)
        if library is None:
            return None, None
        steps, waits = config.trace_steps.end, config.auto_wait
        auto = Auto(library, paths, choice, steps=steps, waits=waits, taken=taken)
        installed = True
        return library, auto
    finally:
        if not installed:
            start.leave()


def install_or_go_on(config: Config, torch: Any) -> Optional[Library]:
    """None where no adapter is for this torch: the run goes on without us, unless STALLOC_STRICT=1."""
    global unfit
    try:
        return _install_allocator(config, torch)
    except UnfitTorchError as error:
        if config.strict:
            raise
        unfit = True
        log.error(f"{error}; this run goes on with plain torch, unplanned")
        return None


def _install_allocator(config: Config, torch: Any) -> Library:
    device = device_of(config.device, torch)
    if device == "cuda" and torch.cuda.is_initialized():
        raise RuntimeError(TOO_LATE)
    running = str(torch.__version__)
    adapter, obstacle = _load_adapter(torch, device)
    if adapter is not None:
        _with_context(lambda: adapter.install(device, running))
        return adapter
    if device != "cuda" or config.strict:
        raise RuntimeError(f"{obstacle}; reinstall stalloc where this torch is installed")
    return _install_pluggable(torch, obstacle)


def _with_context(call: Callable[[], None]) -> None:
    try:
        call()
    except RuntimeError as error:
        if _BAD_VALUE.match(str(error)):  # of a variable that the library reads
            raise ConfigError(str(error)) from error
        raise RuntimeError(f"stalloc could not be installed under torch: {error}") from error


def device_of(chosen: str, torch: Any) -> str:
    """CUDA where torch sees a GPU; queried through NVML, since the program may yet set CUDA_VISIBLE_DEVICES or fork."""
    if chosen != "auto":
        return chosen
    with _environment("PYTORCH_NVML_BASED_CUDA_CHECK", "1"):
        return "cuda" if torch.cuda.is_available() else "cpu"


@contextlib.contextmanager
def _environment(name: str, value: str) -> Iterator[None]:
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


def fake_run(config: Config, torch: Any) -> Any:
    """A device without memory, and the tensors for it; torch's own allocators stay."""
    device = "cpu" if config.device == "cpu" else "cuda"
    if device == "cuda" and torch.cuda.is_initialized():
        raise RuntimeError(TOO_LATE)
    running = str(torch.__version__)
    adapter, obstacle = _load_adapter(torch, "cpu")
    if adapter is None:
        raise RuntimeError(f"{obstacle}; reinstall stalloc where this torch is installed")
    unknown, fakes = (
        importlib.import_module("stalloc.train.fake.unknown"),
        importlib.import_module("stalloc.train.fake.running"),
    )
    if os.environ.get("STALLOC_TRACE_USES") == "1":
        log.warning("a trace of fake tensors does not record uses: STALLOC_TRACE_USES is left out")
    assumptions = unknown.parse_assumptions(config.fake_assume)
    _with_context(lambda: adapter.install_fake(device, running))
    facts = fakes.facts_path(os.environ.get("STALLOC_MODEL_INFO_PATH", ""), config.rank)
    return fakes.FakeRun(adapter, device, assumptions, facts)


def _load_adapter(torch: Any, device: str) -> tuple[Optional[TorchLibrary], str]:
    """The adapter, or None and why it cannot be used. UnfitTorchError where it is for another torch."""
    running = str(torch.__version__)
    try:
        adapter = TorchLibrary(library_.find_adapter(running, Path(torch.__file__).parent / "include"))
    except LibraryError as error:
        return None, f"the adapter for torch {running} is not usable: {error}"
    if device == "cuda" and not adapter.has_cuda:
        return None, f"the adapter for torch {running} was built without CUDA"
    return adapter, ""


def _install_pluggable(torch: Any, obstacle: str) -> Library:
    library = Library(library_.find_or_raise(library_.LIBRARY_NAME))
    _with_context(library.init)
    memory = torch.cuda.memory
    allocator = memory.CUDAPluggableAllocator(str(library.path), "stalloc_malloc", "stalloc_free")
    allocator.allocator().set_record_stream_fn(library.address_of("stalloc_record_stream"))
    memory.change_current_allocator(allocator)
    log.warning(
        f"{obstacle}; using libstalloc.so through torch's pluggable allocator instead: torch.cuda.memory_stats and "
        "memory_snapshot, CUDA graphs, memory pools and CUDA IPC do not work, out of memory is not retried, and "
        "STALLOC_TRACE_USES records nothing"
    )
    return library
