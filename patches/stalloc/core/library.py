"""The C ABI in ctypes: where the libraries are, every signature, and the check of the ABI's version.

All signatures of allocator/capi/stalloc.h and allocator/torch/stalloc_torch.h stand here and nowhere else.
"""

from __future__ import annotations

import ctypes
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Optional

from stalloc.core import interface
from stalloc.core.version import INSTALLED

ABI_VERSION = 8
LIBRARY_NAME = "libstalloc.so"
TORCH_LIBRARY_NAME = "libstalloc_torch.so"  # for the torch that the package was built with
TORCH_LIBRARIES = "libstalloc_torch*.so"  # a wheel has one for each minor version: libstalloc_torch-2.11.so
PLANNER_NAME = "stalloc-planner"


class LibraryError(RuntimeError):
    """A library of ours is missing, cannot be loaded, or speaks another ABI."""


class UnfitTorchError(RuntimeError):
    """There are adapters, and none is for the torch that runs."""


class Library:
    """libstalloc.so, or what the adapter shares with it. Calls release the GIL; every call is thread-safe."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._dll = ctypes.CDLL(str(path))
        except OSError as error:
            raise LibraryError(f"cannot load {path}: {error}") from error
        try:
            self._declare()
        except AttributeError as error:
            raise LibraryError(f"{path} is not one of stalloc's libraries: {error}") from error
        if self.abi_version < ABI_VERSION:
            raise LibraryError(
                f"{path} speaks an older ABI than this package; reinstall stalloc: "
                f"library {self.abi_version}, package {ABI_VERSION}"
            )

    def _declare(self) -> None:
        number, text, size = ctypes.c_int, ctypes.c_char_p, ctypes.c_size_t
        self._function("stalloc_abi_version", number)
        self._function("stalloc_version", text)
        self._function("stalloc_init", number)
        self._function("stalloc_last_error", text)
        self.mark = self._function("stalloc_mark", None, number, number, number, number, number, text, number)
        self._function("stalloc_stats_json", size, text, size)
        self._function("stalloc_flush", number)
        self._function("stalloc_stop_trace", number)
        self._function("stalloc_start_trace", number)
        self._function("stalloc_prepare_plan", number, text)
        self._function("stalloc_take_plan", number, text)
        # A function of a report's path, as bytes; it must outlive its caller. An empty one: nobody is notified.
        self.tell_oom_reports = self._function("stalloc_tell_oom_reports", None, ctypes.c_void_p)
        self._function("stalloc_trace_again", number, text)
        self._function("stalloc_signature_json", size, text, size)
        self._function("stalloc_drop_plan", None)
        self._function("stalloc_move_run", None, text)
        # It prints nothing from now on.
        self.silence = self._function("stalloc_silence", None)
        # The number of a text in the trace; -1 where nothing is traced.
        self.text = self._function("stalloc_text", ctypes.c_int64, text)
        # Block, offset in it, bytes (0: not known), TensorRole, text.
        wide = ctypes.c_uint64
        self.name_tensor = self._function(
            "stalloc_name_tensor", None, ctypes.c_void_p, wide, wide, number, ctypes.c_int64
        )
        # Block, text: the layer that was called with it.
        self.layer_input = self._function("stalloc_layer_input", None, ctypes.c_void_p, ctypes.c_int64)

        self._declare_sleep()

    def _declare_sleep(self) -> None:
        number, text, size, names = ctypes.c_int, ctypes.c_char_p, ctypes.c_size_t, ctypes.POINTER(ctypes.c_char_p)
        self._function("stalloc_sleep", number, number, names, size, names, size)
        self._function("stalloc_wake", number, number, names, size)
        self._function("stalloc_sleep_json", size, text, size)
        self._function("stalloc_region_tag", number, text, number)
        # The tag of what this thread allocates from now on; the one before.
        self.enter_region = self._function("stalloc_enter_region", number, number)
        self._function("stalloc_read_asleep", number, ctypes.c_void_p, ctypes.c_uint64, ctypes.c_void_p)
        self._function("stalloc_reserve_host_pool", number, number, ctypes.c_uint64)
        self._function("stalloc_release_host_pools", ctypes.c_uint64)

    def _function(self, name: str, result: Any, *arguments: Any) -> Any:
        function = getattr(self._dll, name)
        function.restype = result
        function.argtypes = list(arguments)
        return function

    @property
    def abi_version(self) -> int:
        return int(self._dll.stalloc_abi_version())

    @property
    def version(self) -> str:
        return _decoded(self._dll.stalloc_version())

    @property
    def last_error(self) -> str:
        return _decoded(self._dll.stalloc_last_error())

    def init(self) -> None:
        """Opens the session. RuntimeError with the library's words when that fails."""
        self._raise_unless_zero(self._dll.stalloc_init())

    def stats(self) -> dict[str, Any]:
        """StatsJson, parsed."""
        return _parsed(self._dll.stalloc_stats_json)

    def flush(self) -> None:
        """Events and summary to their files. RuntimeError with the library's words when that fails."""
        self._raise_unless_zero(self._dll.stalloc_flush())

    def stop_trace(self) -> None:
        """Ends the trace in order; the run goes on. RuntimeError with the library's words when that fails."""
        self._raise_unless_zero(self._dll.stalloc_stop_trace())

    def start_trace(self) -> None:
        """Begins a trace that waits. RuntimeError with the library's words when that fails."""
        self._raise_unless_zero(self._dll.stalloc_start_trace())

    def prepare_plan(self, path: Path) -> None:
        """On any thread, while the loop goes on, so that `take_plan` is quick. RuntimeError: that will try it again."""
        self._raise_unless_zero(self._dll.stalloc_prepare_plan(os.fsencode(path)))

    def take_plan(self, path: Path) -> None:
        """Between two iterations, in mode Auto. RuntimeError with the library's words, and nothing has changed."""
        self._raise_unless_zero(self._dll.stalloc_take_plan(os.fsencode(path)))

    def trace_again(self, path: Path) -> None:
        """Traces requests from now on, in mode Auto. RuntimeError with the library's words, and no trace."""
        self._raise_unless_zero(self._dll.stalloc_trace_again(os.fsencode(path)))

    def signature(self) -> dict[str, Any]:
        """Which sizes the run has requested in set-up and first iterations (allocator/runtime/run_signature.h)."""
        return _parsed(self._dll.stalloc_signature_json)

    def drop_plan(self) -> None:
        """Between two iterations, in mode Auto: the plan that serves is another run's, and serves no more."""
        self._dll.stalloc_drop_plan()

    def move_run(self, directory: Path) -> None:
        """In mode Auto: the run's summary goes there."""
        self._dll.stalloc_move_run(os.fsencode(directory))

    def sleep(self, device: int, tags: Optional[list[str]], keep: Optional[list[str]]) -> dict[str, Any]:
        """What it did, of each device (allocator/capi/stalloc.h). RuntimeError with the library's words."""
        self._raise_unless_zero(self._dll.stalloc_sleep(device, *_names(tags), *_names(keep)))
        return _parsed(self._dll.stalloc_sleep_json)

    def wake(self, device: int, tags: Optional[list[str]]) -> dict[str, Any]:
        """Like `sleep`."""
        self._raise_unless_zero(self._dll.stalloc_wake(device, *_names(tags)))
        return _parsed(self._dll.stalloc_sleep_json)

    def region_tag(self, name: str, keep: bool) -> int:
        """The number of a region's tag. RuntimeError with the library's words."""
        number = int(self._dll.stalloc_region_tag(name.encode(), int(keep)))
        self._raise_unless_zero(int(number < 0))
        return number

    def read_asleep(self, address: int, size: int, to: int) -> bool:
        """Copies bytes of a block that sleeps to the host's address `to`; False where they are not at the host."""
        return int(self._dll.stalloc_read_asleep(address, size, to)) == 0

    def reserve_host_pool(self, device: int, size: int) -> None:
        """RuntimeError with the library's words where the host has too little."""
        self._raise_unless_zero(self._dll.stalloc_reserve_host_pool(device, size))

    def release_host_pools(self) -> int:
        """Bytes."""
        return int(self._dll.stalloc_release_host_pools())

    def address_of(self, name: str) -> int:
        """The address of an exported function, for torch's setters."""
        return ctypes.cast(getattr(self._dll, name), ctypes.c_void_p).value or 0

    def _raise_unless_zero(self, status: int) -> None:
        if status != 0:
            raise RuntimeError(self.last_error or f"{self.path.name} failed without a reason: status {status}")

    def graphs(self) -> dict[str, Any]:
        """Which CUDA graphs' pools are followed, which only an adapter can; empty where none are."""
        return {}

    def graph_error(self) -> str:
        """Why this thread's last launch of a CUDA graph was refused; none is without an adapter."""
        return ""

    def uncounted(self) -> list[dict[str, Any]]:
        """For each device, the bytes that no allocator of this process counts; none is known without an adapter."""
        return []

    def follows_graphs(self) -> bool:
        """It sees captures and launches of CUDA graphs."""
        return bool(self.graphs().get("followed"))


class TorchLibrary(Library):
    """libstalloc_torch.so. Load it after `import torch`: it finds torch's libraries in the process."""

    def _declare(self) -> None:
        super()._declare()
        self._function("stalloc_torch_built_for", ctypes.c_char_p)
        self._function("stalloc_torch_has_cuda", ctypes.c_int)
        self._function("stalloc_torch_install_cuda", ctypes.c_int, ctypes.c_char_p)
        self._function("stalloc_torch_install_cpu", ctypes.c_int, ctypes.c_char_p)
        self._function("stalloc_torch_install_fake", ctypes.c_int, ctypes.c_char_p, ctypes.c_int)
        self._function("stalloc_graph_error", ctypes.c_char_p)
        self._function("stalloc_graphs_json", ctypes.c_size_t, ctypes.c_char_p, ctypes.c_size_t)
        self._function("stalloc_uncounted_json", ctypes.c_size_t, ctypes.c_char_p, ctypes.c_size_t)
        # Bytes; the address names the block, None of 0 bytes.
        self.fake_allocate = self._function(
            "stalloc_torch_fake_allocate", ctypes.c_void_p, ctypes.c_size_t, ctypes.c_uint64
        )
        self.fake_record_stream = self._function(
            "stalloc_torch_fake_record_stream", None, ctypes.c_void_p, ctypes.c_uint64
        )
        self.fake_free = self._function("stalloc_torch_fake_free", None, ctypes.c_void_p)

    @property
    def built_for(self) -> str:
        """The torch version that it was compiled against."""
        return _decoded(self._dll.stalloc_torch_built_for())

    @property
    def has_cuda(self) -> bool:
        return bool(self._dll.stalloc_torch_has_cuda())

    def graph_error(self) -> str:
        """Why this thread's last launch of a CUDA graph was refused, once for each; empty: none was since."""
        return _decoded(self._dll.stalloc_graph_error())

    def graphs(self) -> dict[str, Any]:
        """Which CUDA graphs' pools are followed; empty where nothing is installed for CUDA."""
        return _parsed(self._dll.stalloc_graphs_json)

    def uncounted(self) -> list[dict[str, Any]]:
        """For each device, the bytes that no allocator of this process counts; empty where nothing is installed for
        CUDA."""
        return list(_parsed(self._dll.stalloc_uncounted_json).get("devices", []))

    def install(self, device: str, running_torch: str) -> None:
        """Puts our allocator in torch's place. RuntimeError with the library's words when that fails."""
        function = self._dll.stalloc_torch_install_cuda if device == "cuda" else self._dll.stalloc_torch_install_cpu
        self._raise_unless_zero(function(running_torch.encode()))

    def install_fake(self, device: str, running_torch: str) -> None:
        """Adds a device without memory to the trace. RuntimeError with the library's words when that fails."""
        index = 0 if device == "cuda" else -1
        self._raise_unless_zero(self._dll.stalloc_torch_install_fake(running_torch.encode(), index))


def _parsed(write: Any) -> dict[str, Any]:
    """What `write` writes as JSON into a buffer that is large enough."""
    needed = write(None, 0)
    while True:
        buffer = ctypes.create_string_buffer(needed + 1)
        written = write(buffer, needed + 1)
        if written <= needed:
            break
        needed = written  # it grew in between
    result: dict[str, Any] = json.loads(buffer.value or b"{}")
    return result


def _names(names: Optional[list[str]]) -> tuple[Any, int]:
    """An array of names and its length; no array where there is no list."""
    if names is None:
        return None, 0
    return (ctypes.c_char_p * max(len(names), 1))(*[name.encode() for name in names]), len(names)


def _decoded(text: Optional[bytes]) -> str:
    return (text or b"").decode("utf-8", "replace")


def directories() -> Iterator[Path]:
    """Where our files may lie, best first: STALLOC_LIB_PATH, the installed package, the source tree's release build."""
    chosen = os.environ.get("STALLOC_LIB_PATH")
    if chosen:
        yield from _with_siblings(Path(chosen))
    if INSTALLED is not None:
        yield from _with_siblings(INSTALLED / "lib")
    package = Path(__file__).resolve().parents[1]
    yield from _with_siblings(package / "lib")
    if (package.parents[1] / "CMakePresets.json").is_file():
        yield package.parents[1] / "build" / "release"


def _with_siblings(lib: Path) -> Iterator[Path]:
    yield lib
    yield lib.parent / "bin"


def adapters() -> list[tuple[Path, interface.Claim]]:
    """The libraries for a torch in the first place that has any, and what each was compiled against."""
    for directory in directories():
        claims = [(path, interface.claim_of(path)) for path in sorted(directory.glob(TORCH_LIBRARIES), key=_by_length)]
        found = [(path, claim) for path, claim in claims if claim is not None]
        if found:
            return found
    return []


def _by_length(path: Path) -> tuple[int, str]:
    """2.9 before 2.10."""
    return len(path.name), path.name


def find_adapter(running: str, include: Path) -> Path:
    """The library for a torch of that version, whose headers are in `include`.

    Raises:
        LibraryError: there is no adapter at all.
        UnfitTorchError: there are adapters, for other torches.
    """
    found = adapters()
    for path, claim in found:
        if interface.fits(claim, running, include):
            return path
    if not interface.supported(running):
        raise UnfitTorchError(
            f"no adapter is for torch {running}: stalloc has them for PyTorch {interface.SUPPORTED}; planner and "
            "reports work"
        )
    if not found:
        return find_or_raise(TORCH_LIBRARY_NAME)
    built_for = ", ".join(dict.fromkeys(claim.torch for _, claim in found))
    raise UnfitTorchError(
        f"built for torch {built_for}, and this is torch {running}, whose allocator has other classes: to build it for "
        "this one, type `pip install --force-reinstall --no-deps .` in stalloc's source directory"
    )


def find(name: str) -> Optional[Path]:
    """The first file of that name, or None."""
    return next((path for path in (directory / name for directory in directories()) if path.is_file()), None)


def find_or_raise(name: str) -> Path:
    """The first file of that name; LibraryError lists where it was looked for."""
    path = find(name)
    if path is None:
        looked = ", ".join(dict.fromkeys(str(directory) for directory in directories()))
        raise LibraryError(
            f"{name} was not found; build it (`pip install .`) or set STALLOC_LIB_PATH; looked in {looked}"
        )
    return path
