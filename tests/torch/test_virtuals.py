"""Every virtual function of torch's allocator classes is overridden: a base class's default would hide the native one.

torch adds functions to these classes in about every second release. This test looks at the virtual table that the
compiler made, and so holds for whichever torch the adapter is built for. It tells which function is missing.
"""

from __future__ import annotations

import bisect
import re
import shutil
import subprocess
from pathlib import Path

import pytest

CUDA = "stalloc::StallocCudaAllocator"
CPU = "stalloc::StallocCpuAllocator"
# torch's own answer is right for the CPU: our blocks have no context but themselves.
CPU_LEFT_TO_TORCH = {"c10::Allocator::is_simple_data_ptr"}


def output(*command: str) -> str:
    if shutil.which(command[0]) is None:
        pytest.skip(f"needs {command[0]}")
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


class Symbols:
    """The symbols of an unstripped library, demangled, by address."""

    def __init__(self, library: Path) -> None:
        found = re.findall(
            r"^([0-9a-f]{16}) ([0-9a-f]{16}) (\w) (.+)$", output("nm", "-CS", str(library)), re.MULTILINE
        )
        self.tables = {
            name: (int(at, 16), int(size, 16)) for at, size, _, name in found if name.startswith("vtable for")
        }
        functions = sorted((int(at, 16), name) for at, _, kind, name in found if kind.lower() in "tw")
        self._starts = [start for start, _ in functions]
        self._names = [name for _, name in functions]

    def function_at(self, address: int) -> str:
        index = bisect.bisect_left(self._starts, address)
        assert self._starts[index] == address, f"no function begins at {address:#x}"
        return self._names[index]


def without_parameters(name: str) -> str:
    """ "a::B<c>::f" of "a::B<c>::f(d) const"."""
    return re.sub(r"\([^()]*(\([^()]*\)[^()]*)*\)( const)?$", "", name)


def functions_of(library: Path, kind: str) -> list[str]:
    """The function in every slot of a class's virtual table."""
    symbols = Symbols(library)
    if f"vtable for {kind}" not in symbols.tables:
        pytest.skip(f"{library.name} has no symbols, or no {kind}")
    begin, size = symbols.tables[f"vtable for {kind}"]
    functions = []
    relocation = re.compile(r"^([0-9a-f]{16})\s+[0-9a-f]+ (R_X86_64_\w+)\s+(.*)$", re.MULTILINE)
    for at, how, what in relocation.findall(output("readelf", "-rWC", str(library))):
        slot = (int(at, 16) - begin) // 8
        if not 2 <= slot < size // 8:  # 0 and 1: the offset and the type
            continue
        if how == "R_X86_64_RELATIVE":
            functions.append(symbols.function_at(int(what, 16)))
        else:  # of another library: the symbol's value, its name, an addend
            functions.append(re.sub(r"^[0-9a-f]{16} ", "", what).rpartition(" + ")[0])
    assert len(functions) == size // 8 - 2, "slots without a relocation"
    return functions


def test_no_virtual_function_of_the_cuda_allocator_is_left_to_a_base_class(library: Path) -> None:
    functions = functions_of(library, CUDA)
    assert len(functions) > 40, "the table was not understood"
    assert [name for name in functions if not name.startswith("stalloc::")] == []


def test_no_virtual_function_of_the_cpu_allocator_is_left_to_chance(library: Path) -> None:
    left = {without_parameters(name) for name in functions_of(library, CPU) if not name.startswith("stalloc::")}
    assert left == CPU_LEFT_TO_TORCH


SMALL = """
struct Base {
  virtual void f() = 0;
  virtual int g(int) { return 0; }
  virtual ~Base() = default;
};
namespace stalloc {
struct StallocCudaAllocator final : Base {
  void f() override;
};
void StallocCudaAllocator::f() {}
}  // namespace stalloc
"""


def test_a_function_that_a_base_class_answers_is_found(tmp_path: Path) -> None:
    (tmp_path / "small.cc").write_text(SMALL)
    output("g++", "-shared", "-fPIC", "-o", str(tmp_path / "small.so"), str(tmp_path / "small.cc"))
    functions = functions_of(tmp_path / "small.so", CUDA)
    assert [name for name in functions if not name.startswith("stalloc::")] == ["Base::g(int)"]
