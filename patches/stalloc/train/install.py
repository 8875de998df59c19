"""Decides whether and how this process runs under stalloc, and makes it so. Idempotent.

Mode Torch never imports torch: its hooks are placed when the program imports it. Trace and Alloc must have replaced the
allocator before CUDA is initialised, so they import torch at once.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Callable, Optional, Union

from stalloc.core import config as _config
from stalloc.core import coordinates, log, memory_figures, run_cache, variables
from stalloc.core import library as _library
from stalloc.core.library import Library, LibraryError, TorchLibrary, UnfitTorchError
from stalloc.core.run_files import Paths, identity
from stalloc.train import graph_errors, lifetime, process, scalars, started, strict, trace_place
from stalloc.train import session as _session
from stalloc.train.auto import auto as _auto
from stalloc.train.auto import run_choice
from stalloc.train.frameworks import adapters
from stalloc.train.imports import when_imported
from stalloc.train.marking import device_times, nvtx
from stalloc.train.marking.graphs import GraphMarks
from stalloc.train.marking.hooks import OptimizerHooks
from stalloc.train.marking.marks import BEGIN, ITERATION, Marker, MarkSink
from stalloc.train.marking.modules import ModuleMarks
from stalloc.train.marking.tracing import Tracing
from stalloc.train.oom import reports, torch_mode
from stalloc.train.sleep import boundary, server

TOO_LATE = (
    "CUDA is initialised already, so its allocator cannot be replaced any more. `import stalloc`, or run under "
    "`stalloc run`, before anything that initialises CUDA; importing megatron.training does that."
)

_MODE, _TOLD, _START, _START_PLAN = "STALLOC_MODE", "STALLOC_TOLD", "STALLOC_START_PATH", "STALLOC_START_PLAN"
_BAD_VALUE = re.compile(r"[A-Z][A-Z_]+ must be .*; found \"")  # as allocator/runtime/config.cc words it

_activating = False
_unfit = False  # no adapter is for this torch, which was said
_watches_memory_errors = False  # without a mode
_asks_again = False  # whether this process trains


def activate(to_the_end: bool = True, trains: bool = False) -> None:
    """Does what STALLOC_MODE asks of this process; nothing where it is unset, or a second time.

    Args:
        to_the_end: a trace of fake tensors ends the program where it ends; else whoever calls ends FakeRun.
        trains: it is about to, so that it takes a place that the process which started it does not need.

    Raises:
        ValueError: a variable's value is not allowed.
        RuntimeError: the allocator could not be put in place.
    """
    global _activating
    config = _read_environment()
    if config.mode is None:
        _watch_memory_errors()
    if config.mode is None or _activating or _unfit or _session.current is not None:
        return
    if _is_anothers(config, trains):
        return
    if config.mode == _config.TRACE and not config.traced:
        log.info(f"is not traced: STALLOC_TRACE_RANKS={os.environ['STALLOC_TRACE_RANKS']}")
        return
    process.claim(config.rank, idle=True)
    _activating = True  # importing torch below comes back here through the autoload entry point
    try:
        if config.mode == _config.TORCH:
            torch_scalars = _scalars_of(config, _torch_figures)
            lines = _lines_of(config, memory_figures.torch_report(), 1)
            marker = Marker(_ignore, _both(_both(lines, torch_scalars), _claimed_with(config.rank, None)))
            lifetime.start(_session.Session(config.mode, None, marker))
            when_imported("torch", OptimizerHooks(marker).install)
            torch_mode.watch(config.rank)
        else:
            torch = importlib.import_module("torch")
            if config.mode == _config.TRACE:
                trace_place.require(os.environ.get("STALLOC_MODEL_INFO_PATH", ""), config.rank or "0")
            fake = _fake_run(config, torch) if config.mode == _config.TRACE and config.trace_fake else None
            library, auto = _put_in_place(config, torch, fake)
            if library is None:
                return
            reports.watch(library, torch, config.mode)
            lines = _lines_of(
                config, memory_figures.stats_report(library.stats), 1 if config.log_level == "debug" else 0
            )
            finished: Any = _both(lines, _scalars_of(config, lambda: scalars.of_stats(library.stats())))
            block_of = None if fake is None else fake.address
            tracing = Tracing(config, library, torch, block_of) if config.mode == _config.TRACE else None
            finished = finished if tracing is None else _both(finished, tracing.iteration_finished)
            finished = finished if auto is None else _both(finished, auto.iteration_finished)
            finished = _both(finished, _claimed_with(config.rank, library))
            mark = _mark_of(config, library)
            if fake is not None and tracing is not None:
                mark = fake.in_order(mark)
                finished = _both(finished, fake.leaver(tracing)) if to_the_end else finished
            marker = Marker(
                _seen_by(config, mark, torch, tracing if fake is None else None), _both(finished, boundary.reached)
            )
            session = _session.Session(config.mode, library, marker, tracing, fake=fake, auto=auto)
            lifetime.start(session, _device_of(config.device, torch))
            OptimizerHooks(marker, None if tracing is None else tracing.names).install(torch)
            _watch_modules(config, torch, session)
            if fake is not None:
                fake.begin(to_the_end)
            server.serve_if_asked(config.sleep_socket)
        adapters.watch()
    finally:
        _activating = False


def _is_anothers(config: _config.Config, trains: bool) -> bool:
    """The process that started this one has its rank. Whether that needs it is asked again when this one trains."""
    global _asks_again
    owner = process.other_owner(os.environ, config.rank, os.getpid())
    if owner is None or (trains and owner.idle):
        return False
    idle = owner.idle

    def ask_again() -> None:
        if idle:
            started.take_rank()
        activate(trains=True)

    if trains:
        started.tell_of_steps(owner)
    elif not (_asks_again or config.trace_fake):
        _asks_again = True
        when_imported("torch", lambda torch: started.before_use(_device_of(config.device, torch), ask_again))
    return True


def _claimed_with(rank: str, library: Optional[Library]) -> Callable[[int], None]:
    """The rank is this process's from its first iteration on; before, for whom it starts when it has allocated."""

    def has_allocated() -> bool:
        return library is not None and any(device.get("requests") for device in library.stats().get("devices", []))

    return started.claims(lambda: process.claim(rank), None if library is None else has_allocated)


def _seen_by(config: _config.Config, mark: MarkSink, torch: Any, tracing: Optional[Tracing]) -> MarkSink:
    """The sink; of `tracing`, one on a device, at its time, with ranges beside it, as is asked for."""
    if tracing is not None and config.trace_times:
        mark = device_times.behind_the_device(mark, torch, lambda: tracing.running)
    return nvtx.beside(mark, torch) if config.nvtx else mark


def _read_environment() -> _config.Config:
    _tell_misspelt()
    os.environ.update(_config.detail_of(os.environ))  # the library reads them there
    return _config.read_config()


def _tell_misspelt() -> None:
    """Variables that nothing reads, once for a run: its other ranks and what it starts have the same."""
    found = variables.misspelt(os.environ)
    told = os.environ.get(_TOLD, "").split(",")
    meant = bool(os.environ.get(_MODE))  # else only what looks like one of ours
    new = {name: nearest for name, nearest in found.items() if name not in told and (meant or nearest)}
    if not new or _config.rank_text(os.environ) not in ("", "0"):
        return
    os.environ[_TOLD] = ",".join(found)
    for name, nearest in new.items():
        guess = f"did you mean {nearest}?" if nearest else "docs/variables.md has those that are"
        log.warning(f"{name} is not read by anything: {guess}")


def _watch_memory_errors() -> None:
    """STALLOC_OOM_REPORT alone: nothing else is asked of this process."""
    global _watches_memory_errors
    rank = _config.rank_text(os.environ)
    if not _watches_memory_errors and process.other_owner(os.environ, rank, os.getpid()) is None:
        _watches_memory_errors = True
        torch_mode.watch(rank, "none")


def _watch_modules(config: _config.Config, torch: Any, session: _session.Session) -> None:
    marker, tracing = session.marker, session.tracing
    if session.library is not None:
        graph_errors.install(torch, session.library)
    if session.auto is not None:
        session.auto.watch_set_up(torch, marker)
    if tracing is not None and session.library is not None and not session.library.follows_graphs():
        GraphMarks(lambda name, begins: marker.module(name, "F", begins)).install(torch)
    if config.trace_modules and tracing is not None:
        inputs = () if tracing.names is None else (tracing.names.layer_inputs,)
        marks = ModuleMarks(marker.module, tracing.paths, torch.compiler.is_compiling, *inputs)
        marks.install(torch)
        tracing.when_ended(marks.remove)


def activate_auto(directory: Union[str, os.PathLike[str], None]) -> None:
    """Mode Auto for a program that asks for it itself. RuntimeError: the allocator could not be put in place."""
    if os.environ.get(_MODE):
        return
    os.environ[_MODE] = _config.AUTO
    if directory is not None:
        os.environ["STALLOC_MODEL_INFO_PATH"] = os.fspath(directory)
    try:
        activate()
    except (RuntimeError, ValueError):
        del os.environ[_MODE]  # what this process starts would ask for it again
        raise


def _ignore(*_: object) -> None:
    """For marks and reports that nobody asked for."""


def _lines_of(config: _config.Config, report: Callable[[int], None], steps: int) -> Callable[[int], object]:
    """The line of figures, after as many iterations as STALLOC_LOG_STEPS says, else `steps`; 0: never."""
    steps = steps if config.log_steps is None else config.log_steps
    return memory_figures.every(steps, memory_figures.harmless(report)) if steps else _ignore


def _scalars_of(config: _config.Config, figures: scalars.Figures) -> Callable[[int], object]:
    if not config.tensorboard:
        return _ignore
    scalars.require()
    return memory_figures.harmless(scalars.report(config.tensorboard, config.rank, figures))


def _torch_figures() -> Iterator[tuple[str, float]]:
    return scalars.of_torch(sys.modules["torch"])


def _both(first: Callable[[int], object], second: Callable[[int], object]) -> Callable[[int], None]:
    def told(iteration: int) -> None:
        first(iteration)
        second(iteration)

    return told


# The allocator -------------------------------------------------------------------------------------------------------


def _find_plan(rank: str) -> None:
    """Where this rank has no plan, that of a rank at the same place of the parallel run."""
    try:
        chosen = coordinates.choose_plan(sys.argv[1:], os.environ, rank)
    except (OSError, ValueError) as error:
        log.warning(f"no other rank's plan was looked for: {error}")
        return
    if chosen is not None:
        os.environ[coordinates.PLAN_RANK] = str(chosen)
        log.debug(f"has no plan of its own, and is served from rank {chosen}'s: the same place, other data")


def _mark_of(config: _config.Config, library: Library) -> MarkSink:
    mark: MarkSink = library.mark
    if config.mode != _config.ALLOC or not config.strict:
        return mark
    return strict.checked(mark, (ITERATION, BEGIN), library.stats, _plan_of(config.rank))


def _plan_of(rank: str) -> str:
    rank = os.environ.get(coordinates.PLAN_RANK) or rank or "0"
    return f"{os.environ['STALLOC_MODEL_INFO_PATH']}/output/plan/rank{int(rank):05d}.plan"


def _begin_start(torch: Any, rank: int) -> run_choice.Choice:
    module = process.module_of_command(process.command_of_process())
    chosen = run_cache.chosen_directory(os.environ)
    choice = run_choice.begin(os.environ, sys.argv, str(torch.__version__), rank, module)
    os.environ["STALLOC_MODEL_INFO_PATH"] = str(choice.start.run)
    if chosen is None:
        os.environ[run_cache.FOUND] = str(choice.start.run)
    return choice


def _put_in_place(
    config: _config.Config, torch: Any, fake: Optional[Any]
) -> tuple[Optional[Library], Optional[_auto.Auto]]:
    """The allocator, and under Auto who sees to its plan; as _install_or_go_on."""
    if config.mode == _config.AUTO:
        return _install_auto(config, torch)
    if config.mode == _config.ALLOC:
        _find_plan(config.rank)
    return (_install_or_go_on(config, torch) if fake is None else fake.library), None


def _install_auto(config: _config.Config, torch: Any) -> tuple[Optional[Library], Optional[_auto.Auto]]:
    rank = int(config.rank or 0)
    choice = _begin_start(torch, rank)
    start = choice.start
    installed = False
    try:
        _find_plan(config.rank)
        paths = Paths(start, rank, int(os.environ.get(coordinates.PLAN_RANK, rank)))
        taken = identity(paths.plan)
        with _environment(_START, str(start.folder)), _environment(_START_PLAN, choice.trust):  # of this process alone
            library = _install_or_go_on(config, torch)
        if library is None:
            return None, None
        steps, waits = config.trace_steps.end, config.auto_wait
        auto = _auto.Auto(library, paths, choice, steps=steps, waits=waits, taken=taken)
        installed = True
        return library, auto
    finally:
        if not installed:
            start.leave()


def _install_or_go_on(config: _config.Config, torch: Any) -> Optional[Library]:
    """None where no adapter is for this torch: the run goes on without us, unless STALLOC_STRICT=1."""
    global _unfit
    try:
        return _install_allocator(config, torch)
    except UnfitTorchError as error:
        if config.strict:
            raise
        _unfit = True
        log.error(f"{error}; this run goes on with plain torch, unplanned")
        return None


def _install_allocator(config: _config.Config, torch: Any) -> Library:
    device = _device_of(config.device, torch)
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
            raise _config.ConfigError(str(error)) from error
        raise RuntimeError(f"stalloc could not be installed under torch: {error}") from error


def _device_of(chosen: str, torch: Any) -> str:
    """CUDA where torch sees a GPU; asked through NVML, since the program may yet set CUDA_VISIBLE_DEVICES or fork."""
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


def _fake_run(config: _config.Config, torch: Any) -> Any:
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
        log.warning("a trace of fake tensors does not tell uses: STALLOC_TRACE_USES is left out")
    assumptions = unknown.parse_assumptions(config.fake_assume)
    _with_context(lambda: adapter.install_fake(device, running))
    facts = fakes.facts_path(os.environ.get("STALLOC_MODEL_INFO_PATH", ""), config.rank)
    return fakes.FakeRun(adapter, device, assumptions, facts)


def _load_adapter(torch: Any, device: str) -> tuple[Optional[TorchLibrary], str]:
    """The adapter, or None and why it cannot be used. UnfitTorchError where it is for another torch."""
    running = str(torch.__version__)
    try:
        adapter = TorchLibrary(_library.find_adapter(running, Path(torch.__file__).parent / "include"))
    except LibraryError as error:
        return None, f"the adapter for torch {running} is not usable: {error}"
    if device == "cuda" and not adapter.has_cuda:
        return None, f"the adapter for torch {running} was built without CUDA"
    return adapter, ""


def _install_pluggable(torch: Any, obstacle: str) -> Library:
    library = Library(_library.find_or_raise(_library.LIBRARY_NAME))
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
