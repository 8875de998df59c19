"""Reading the environment, and telling training processes from the others."""

from __future__ import annotations

import pytest

from stalloc.core import config
from stalloc.core.version import __version__, _version_of_source_tree
from stalloc.train import process


def test_nothing_is_read_where_no_mode_is_set() -> None:
    assert config.read_config({"STALLOC_DEVICE": "abacus", "STALLOC_LOG_LEVEL": "loud"}) == config.Config()
    assert config.read_config({"STALLOC_MODE": ""}).mode is None


@pytest.mark.parametrize(("written", "mode"), [("Torch", "Torch"), ("TRACE", "Trace"), ("alloc", "Alloc")])
def test_modes_are_read_in_any_case(written: str, mode: str) -> None:
    assert config.read_config({"STALLOC_MODE": written}).mode == mode


@pytest.mark.parametrize(
    ("variable", "value"),
    [("STALLOC_MODE", "Tracing"), ("STALLOC_DEVICE", "tpu"), ("STALLOC_LOG_LEVEL", "4"), ("STALLOC_LOG_LEVEL", "x")],
)
def test_a_value_that_is_not_allowed_is_named_with_its_variable(variable: str, value: str) -> None:
    with pytest.raises(ValueError, match=f"{variable} must be .*'{value}'"):
        config.read_config({"STALLOC_MODE": "Trace", variable: value})


def test_every_variable_is_read() -> None:
    environment = {
        "STALLOC_MODE": "Alloc",
        "STALLOC_DEVICE": "CPU",
        "STALLOC_STRICT": "1",
        "STALLOC_LOG_LEVEL": "Warning",
        "RANK": "3",
    }
    assert config.read_config(environment) == config.Config("Alloc", "cpu", True, "warning", "3")


@pytest.mark.parametrize(
    ("written", "level"),
    [("", "info"), ("0", "debug"), ("1", "debug"), ("2", "debug"), ("3", "info"), ("OFF", "off"), ("error", "error")],
)
def test_levels_have_names_and_the_numbers_of_the_published_tool(written: str, level: str) -> None:
    assert config.read_config({"STALLOC_MODE": "Trace", "STALLOC_LOG_LEVEL": written}).log_level == level


@pytest.mark.parametrize(
    ("variables", "added"),
    [
        ({}, {"MODULES": "1", "STACKS": "1", "USES": "1"}),
        ({"STALLOC_TRACE_STACKS": "64K", "STALLOC_TRACE_USES": "0"}, {"MODULES": "1"}),
        ({"STALLOC_TRACE_FAKE": "1"}, {"MODULES": "1", "STACKS": "1"}),
        ({"STALLOC_TRACE_DETAIL": "0"}, {}),
        ({"STALLOC_MODE": "Alloc"}, {}),
        ({"STALLOC_MODE": ""}, {}),
    ],
)
def test_one_switch_is_for_all_detail_that_is_not_set_itself(variables: dict[str, str], added: dict[str, str]) -> None:
    environment = {"STALLOC_MODE": "trace", "STALLOC_TRACE_DETAIL": "1", **variables}
    assert config.detail_of(environment) == {f"STALLOC_TRACE_{name}": value for name, value in added.items()}


def test_a_switch_for_detail_is_0_or_1() -> None:
    with pytest.raises(ValueError, match="STALLOC_TRACE_DETAIL must be 0 or 1: 'all'"):
        config.detail_of({"STALLOC_MODE": "Trace", "STALLOC_TRACE_DETAIL": "all"})


@pytest.mark.parametrize(
    ("environment", "rank"),
    [
        ({}, ""),
        ({"RANK": "2", "SLURM_PROCID": "7"}, "2"),
        ({"OMPI_COMM_WORLD_RANK": "4"}, "4"),
        ({"SLURM_PROCID": "5", "PMI_RANK": "6"}, "5"),
        ({"RANK": "", "PMI_RANK": "6"}, "6"),
    ],
)
def test_the_rank_comes_from_the_first_launcher_variable_that_is_set(environment: dict[str, str], rank: str) -> None:
    assert config.rank_text(environment) == rank


@pytest.mark.parametrize(
    ("command", "module"),
    [
        ("python train.py -m x", None),
        ("python -m torch.distributed.run train.py", "torch.distributed.run"),
        ("python -u -W error -Xdev -m pkg.mod", "pkg.mod"),
        ("python -mpkg", "pkg"),
        ("python -Ium pkg", "pkg"),
        ("python -c 'print()' -m pkg", None),
        ("python --check-hash-based-pycs always -m pkg", "pkg"),
        ("python - -m pkg", None),
        ("python", None),
    ],
)
def test_the_module_of_a_command_line_is_found_as_python_finds_it(command: str, module: str | None) -> None:
    assert process.module_of_command(command.split()) == module


@pytest.mark.parametrize(
    ("command", "program", "trains"),
    [
        ("python train.py", "train.py", True),
        ("python -m pkg.train", "-m", True),
        ("python", "", True),
        ("python /venv/bin/torchrun train.py", "/venv/bin/torchrun", False),
        ("python -m torch.distributed.run train.py", "-m", False),
        ("python -m torch.distributed.launch train.py", "/x/launch.py", False),
        ("python /venv/bin/accelerate launch train.py", "/venv/bin/accelerate", False),
        ("python /venv/bin/stalloc info", "/venv/bin/stalloc", False),
        ("python -m stalloc plan run1", "-m", False),
        ("python mytorchrun.py", "mytorchrun.py", True),
    ],
)
def test_launchers_and_our_own_commands_do_not_train(command: str, program: str, trains: bool) -> None:
    assert process.trains(command.split(), program) is trains


@pytest.mark.parametrize(
    ("owner", "rank", "owned"),
    [
        (None, "", False),
        ("77:", "", True),
        ("77:", "0", False),
        ("77:0", "0", True),
        ("77:0", "1", False),
        ("42:0", "0", False),
        ("garbage", "", False),
        ("77:0:idle", "0", True),
        ("42::idle", "", False),
    ],
)
def test_a_process_of_another_pid_and_the_same_rank_owns_this_one(owner: str | None, rank: str, owned: bool) -> None:
    environment = {} if owner is None else {process.OWNER_VARIABLE: owner}
    found = process.other_owner(environment, rank, pid=42)
    assert (found is not None) is owned
    assert found is None or found == process.Owner("77", rank, str(owner).endswith("idle"))


def test_the_version_is_that_of_cmakelists(tmp_path: object) -> None:
    assert __version__[0].isdigit()
    assert "unknown" not in __version__
    assert _version_of_source_tree(type(tmp_path)("/nowhere")) == "0+unknown"  # type: ignore[call-arg]
