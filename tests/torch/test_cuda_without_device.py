"""The CUDA adapter on a machine without a GPU: it installs, initialises nothing, and torch behaves as without it."""

from __future__ import annotations

import pytest
from adapter_process import Adapter


@pytest.fixture(autouse=True)
def without_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hides the devices of a machine that has some."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")


@pytest.mark.every_torch
@pytest.mark.parametrize("mode", ["Trace", "Alloc"])
def test_torch_without_a_device_behaves_as_under_the_native_allocator(adapter: Adapter, mode: str) -> None:
    native = adapter.run("cuda_without_device.py", "native").result
    ours = adapter.run("cuda_without_device.py", "stalloc", mode=mode).result
    assert ours["outcomes"] == native["outcomes"]
    assert ours["outcomes"]["is_available"] == "returns False"
    assert ours["outcomes"]["is_initialized"] == "returns False"
    assert ours["outcomes"]["backend"] == "returns 'native'"
    assert ours["settings"] == native["settings"], "expandable segments come with an arena, not before"


@pytest.mark.every_torch
@pytest.mark.parametrize("mode", ["Trace", "Alloc", "Auto"])
def test_graphs_are_followed(adapter: Adapter, mode: str) -> None:
    """This torch imports what is needed for that."""
    ours = adapter.run("cuda_without_device.py", "stalloc", mode=mode).result["graphs"]
    assert ours == {"followed": True, "pools": []}


@pytest.mark.every_torch
@pytest.mark.parametrize(
    ("variable", "given"),
    [
        ("PYTORCH_ALLOC_CONF", "expandable_segments:False"),
        ("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True"),
        ("PYTORCH_CUDA_ALLOC_CONF", "max_split_size_mb:512"),
        pytest.param("PYTORCH_ALLOC_CONF", "expandable_segments:True", marks=pytest.mark.slow),
        pytest.param("PYTORCH_ALLOC_CONF", "max_split_size_mb:512", marks=pytest.mark.slow),
        pytest.param("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:False", marks=pytest.mark.slow),
    ],
)
def test_a_users_allocator_settings_stand(adapter: Adapter, variable: str, given: str) -> None:
    ours = adapter.run("cuda_without_device.py", "stalloc", mode="Alloc", **{variable: given}).result["settings"]
    native = adapter.run("cuda_without_device.py", "native", **{variable: given}).result["settings"]
    assert ours == native
    if variable == "PYTORCH_CUDA_ALLOC_CONF":  # up to torch 2.9 the other one is not for CUDA
        assert ours["PYTORCH_CUDA_ALLOC_CONF"] == given
        assert ours["expandable_segments"] == (given == "expandable_segments:True")
        assert ours["max_split_size"] == (512 << 20 if "max_split" in given else -1)


def test_a_second_install_is_a_clear_error(adapter: Adapter) -> None:
    result = adapter.run("install.py", "twice", "cuda").result
    assert "installed already" in result["error"]


@pytest.mark.every_torch
def test_both_adapters_share_one_session(adapter: Adapter) -> None:
    result = adapter.run("install.py", "both").result
    assert result["requests"] > 0
    assert result["errors"] == [None, None]
