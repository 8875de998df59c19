"""Installing the CPU adapter, and the errors of installing either adapter."""

from __future__ import annotations

import pytest
from adapter_process import Adapter


@pytest.mark.every_torch
def test_new_tensors_go_through_the_adapter_and_old_ones_are_freed_by_their_own_deleter(adapter: Adapter) -> None:
    result = adapter.run("install.py", "old_and_new").result
    assert result["requests"] > 0
    assert result["old_sum"] == 1000.0
    assert result["unknown_frees"] == 0


def test_a_second_install_is_a_clear_error_and_changes_nothing(adapter: Adapter) -> None:
    result = adapter.run("install.py", "twice", "cpu").result
    assert "installed already" in result["error"]
    assert result["sum"] == 10.0


@pytest.mark.parametrize(
    ("device", "version"),
    [
        ("cpu", "2.1.0+cu118"),
        ("cuda", ""),
        pytest.param("cpu", "", marks=pytest.mark.slow),
        pytest.param("cpu", "nonsense", marks=pytest.mark.slow),
        pytest.param("cuda", "2.1.0+cu118", marks=pytest.mark.slow),
        pytest.param("cuda", "nonsense", marks=pytest.mark.slow),
    ],
)
def test_another_torch_is_refused_before_anything_is_touched(adapter: Adapter, device: str, version: str) -> None:
    result = adapter.run("install.py", "version", device, version).result
    assert "built for another torch" in result["error"]
    assert result["built_for"] in result["error"]
    assert version in result["error"]
    assert not (adapter.directory / "trace").exists(), "the session must not be opened"


def test_torch_mode_installs_nothing(adapter: Adapter) -> None:
    result = adapter.run("install.py", "old_and_new", mode="Torch").result
    assert result["requests"] == 0


def test_an_unknown_mode_is_refused_with_what_is_allowed(adapter: Adapter) -> None:
    finished = adapter.run("install.py", "old_and_new", mode="Tracing")
    assert finished.code == 1
    assert "STALLOC_MODE" in finished.err
    assert "Tracing" in finished.err
    assert "Alloc" in finished.err


@pytest.mark.parametrize("mode", ["Trace", "Alloc"])
def test_a_missing_directory_variable_is_refused(adapter: Adapter, mode: str) -> None:
    finished = adapter.run("install.py", "old_and_new", mode=mode, STALLOC_MODEL_INFO_PATH="")
    assert finished.code == 1
    assert "STALLOC_MODEL_INFO_PATH" in finished.err


def test_a_missing_plan_is_a_warning_and_an_unplanned_run(adapter: Adapter) -> None:
    finished = adapter.run("install.py", "old_and_new", mode="Alloc")
    assert finished.result["requests"] > 0
    assert finished.result["degraded"]
    assert "rank00000.plan" in finished.err


def test_a_missing_plan_is_an_error_under_strict(adapter: Adapter) -> None:
    finished = adapter.run("install.py", "old_and_new", mode="Alloc", STALLOC_STRICT="1")
    assert finished.code == 1
    assert "rank00000.plan" in finished.err
