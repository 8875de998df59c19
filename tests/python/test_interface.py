"""The fingerprint of torch's interface: what changes it, and which library a torch gets."""

from __future__ import annotations

from pathlib import Path

import pytest

from stalloc.core import interface as _interface
from stalloc.core import library as _library
from stalloc.core.interface import Claim

HEADER = "struct Allocator {\n  virtual void* allocate(int bytes) = 0; // in bytes\n};\n"


def headers(directory: Path, text: str, name: str = "c10/core/Allocator.h") -> Path:
    path = directory / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return directory


def fingerprint(directory: Path) -> str:
    found = _interface.fingerprint(directory)
    assert found is not None
    return found


def test_comments_and_spaces_are_no_part_of_an_interface(tmp_path: Path) -> None:
    text = HEADER.replace("// in bytes", "/* in\n bytes */\n").replace("  ", "\t")
    assert fingerprint(headers(tmp_path / "a", HEADER)) == fingerprint(headers(tmp_path / "b", text))


@pytest.mark.parametrize(
    "change",
    [
        ("int bytes", "long bytes"),
        ("};", "  virtual void free(void*) {}\n};"),
        ("virtual void* allocate(int bytes) = 0;", "virtual void f();\n  virtual void* allocate(int bytes) = 0;"),
    ],
)
def test_another_function_order_or_type_is_another_interface(tmp_path: Path, change: tuple[str, str]) -> None:
    changed = headers(tmp_path / "b", HEADER.replace(*change))
    assert fingerprint(headers(tmp_path / "a", HEADER)) != fingerprint(changed)


def test_the_same_words_in_another_header_are_another_interface(tmp_path: Path) -> None:
    moved = headers(tmp_path / "b", HEADER, "c10/cuda/CUDACachingAllocator.h")
    assert fingerprint(headers(tmp_path / "a", HEADER)) != fingerprint(moved)


def test_without_headers_there_is_no_fingerprint(tmp_path: Path) -> None:
    assert _interface.fingerprint(tmp_path) is None
    assert _interface.fingerprint(headers(tmp_path, HEADER, "c10/core/Unrelated.h")) is None


def test_a_library_is_for_the_torch_that_has_its_interface(tmp_path: Path) -> None:
    claim = Claim("2.13.0+cu130", fingerprint(headers(tmp_path, HEADER)))
    assert _interface.fits(claim, "2.13.1", tmp_path)
    assert _interface.fits(claim, "2.13.0a0+8145d630e8.nv26.06", tmp_path), "a vendor's with the same classes"
    assert not _interface.fits(claim, "2.14.0", tmp_path)
    headers(tmp_path, HEADER.replace("int", "long"))
    assert not _interface.fits(claim, "2.13.0+cu130", tmp_path), "the number alone says nothing"


def test_a_librarys_claim_is_read_from_its_bytes(tmp_path: Path) -> None:
    library = tmp_path / "libstalloc_torch.so"
    library.write_bytes(b"\x7fELF\0stalloc adapter for torch 2.13.0a0+x.nv26, interface " + b"0a" * 32 + b"\0")
    assert _interface.claim_of(library) == Claim("2.13.0a0+x.nv26", "0a" * 32)
    library.write_bytes(b"\x7fELF\0")
    assert _interface.claim_of(library) is None


def library(directory: Path, name: str, torch: str, interface: str) -> Path:
    path = directory / name
    path.write_bytes(f"\x7fELF stalloc adapter for torch {torch}, interface {interface}".encode())
    return path


def test_of_several_libraries_a_torch_gets_the_one_that_fits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = fingerprint(headers(tmp_path / "include", HEADER))
    monkeypatch.setenv("STALLOC_LIB_PATH", str(tmp_path))
    library(tmp_path, "libstalloc_torch-2.12.so", "2.12.1+cu130", "0" * 64)
    library(tmp_path, "libstalloc_torch-2.9.so", "2.9.1+cu128", "0" * 64)
    fitting = library(tmp_path, "libstalloc_torch-2.13.so", "2.13.0+cu130", here)
    library(tmp_path, "libstalloc_torch-2.14.so", "2.14.1+cu130", here)
    assert _library.find_adapter("2.13.2", tmp_path / "include") == fitting
    with pytest.raises(_library.UnfitTorchError) as unfit:
        _library.find_adapter("2.12.1+cu130", tmp_path / "include")
    assert "built for torch 2.9.1+cu128, 2.12.1+cu130, 2.13.0+cu130, 2.14.1+cu130, and" in str(unfit.value)
    assert "this is torch 2.12.1+cu130" in str(unfit.value)
