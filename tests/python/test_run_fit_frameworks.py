"""`stalloc run --fit` with the real frameworks: it trains what does not fit, as before, and the next start knows how.

STALLOC_FRAMEWORKS_PYTHON names a Python that has transformers and Lightning, STALLOC_MEGATRON_PYTHON one that has
Megatron-LM; by default this one. Skipped where they are not.
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from processes import HERE, PACKAGE, ROOT, Finished, run
from test_frameworks_real import SCRIPTS, free_port

pytestmark = pytest.mark.timeout(600)
MEGATRON = HERE / "megatron_real"
TINY = (
    "--num-layers 4 --hidden-size 64 --num-attention-heads 4 --swiglu --vocab-size 512 --no-bias-swiglu-fusion "
    "--no-bias-dropout-fusion --disable-bias-linear --position-embedding-type rope --normalization RMSNorm "
    "--lr 1e-3 --log-interval 1 --untie-embeddings-and-output-weights --mock-data --tokenizer-type NullTokenizer "
    "--split 949,50,1 --num-workers 0 --transformer-impl local --no-persist-layer-norm --no-masked-softmax-fusion "
    "--no-rope-fusion --no-gradient-accumulation-fusion --train-iters 10 --eval-iters 1 --eval-interval 100 "
    "--attention-dropout 0 --hidden-dropout 0"
)


@dataclasses.dataclass
class Program:
    """A script with its arguments, and the Python that has its framework."""

    build: Path
    directory: Path
    python: str
    words: list[str]
    path: tuple[Path, ...]

    def require(self, *packages: str) -> None:
        if run([self.python, "-c", f"import {', '.join(packages)}"]).code != 0:
            pytest.skip(f"{self.python} has no {packages[0]}; a variable may name one that has")

    def start(self, *options: str, **variables: str) -> Finished:
        """Under `stalloc run` with these options; without any, in plain torch."""
        environment = {
            "STALLOC_LIB_PATH": str(self.build),
            "STALLOC_MODEL_INFO_PATH": str(self.directory / "info"),
            "STALLOC_DEVICE": "cpu",
            "STALLOC_ROOT": str(ROOT),
            "PYTHONPATH": ":".join(map(str, [PACKAGE, *self.path])),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": free_port(),
            **variables,
        }
        command = [self.python, "-W", "ignore", *(("-m", "stalloc", "run") if options else ()), *options, *self.words]
        return run(command, environment, cwd=self.directory).good()

    def expect_fit(self, size: str, **variables: str) -> tuple[list[Finished], dict[str, Any]]:
        """A first start with its trials, and a second one; and the choice."""
        first, second = (self.start("--fit", size, **variables) for _ in range(2))
        assert "traces the program's first iterations" in first.err
        assert "takes the choice of an earlier start" in second.err
        (file,) = (self.directory / "info" / "fit").glob("*.json")
        document: dict[str, Any] = json.loads(file.read_text())
        own, batch = document["automatic"]["own"], document["automatic"]["batch"]
        assert batch["micro_batch"] * batch["accumulation"] == own["micro_batch"] * own["accumulation"]
        live = re.search(r"held \S+ MiB for (\S+) MiB live", second.err)
        assert live is not None, second.err
        assert float(live[1]) == pytest.approx(document["predicted"]["peak_live_bytes"] / 2**20, 0.02)
        return [first, second], document


def expect_smaller(document: dict[str, Any], framework: str) -> None:
    own, batch = document["automatic"]["own"], document["automatic"]["batch"]
    assert batch["framework"] == framework
    assert batch["micro_batch"] < own["micro_batch"]


def of_library(build: Path, directory: Path, script: str, *packages: str) -> Program:
    python = os.environ.get("STALLOC_FRAMEWORKS_PYTHON", sys.executable)
    program = Program(build, directory, python, [str(SCRIPTS / script)], (SCRIPTS,))
    program.require(*packages)
    return program


def test_lightning_s_epochs_are_as_long_as_before(build: Path, tmp_path: Path) -> None:
    """Loaders that are made anew for each epoch, limits and validations in batches, checkpoints."""
    program = of_library(build, tmp_path, "lightning_epochs.py", "lightning.pytorch")

    def losses(done: Finished) -> list[float]:
        found: list[float] = json.loads(done.out.splitlines()[-1])
        return found

    plain = losses(program.start(CHECKPOINTS="plain"))
    ended, document = program.expect_fit("22M", CHECKPOINTS="fitted")
    for done in ended:
        assert losses(done) == pytest.approx(plain, rel=1e-5)
    expect_smaller(document, "lightning")
    once, twice = (len(list((tmp_path / name).iterdir())) for name in ("plain", "fitted"))
    assert twice == 2 * once > 0, "the trials write none"


def test_a_transformers_trainer_takes_smaller_micro_batches(build: Path, tmp_path: Path) -> None:
    program = of_library(build, tmp_path, "trainer.py", "transformers", "accelerate")
    variables = {"ROWS": "64", "STEPS": "12"}

    def losses(name: str) -> list[float]:
        return [float.fromhex(loss) for loss in json.loads((tmp_path / name).read_text())["losses"]]

    program.start(OUTCOME="plain.json", **variables)
    _, document = program.expect_fit("20M", OUTCOME="fitted.json", **variables)
    assert losses("fitted.json") == pytest.approx(losses("plain.json"), rel=1e-4)
    expect_smaller(document, "trainer")


def megatron(build: Path, directory: Path, rows: int, length: int) -> Program:
    """With two micro-batches of so many rows a step."""
    python = os.environ.get("STALLOC_MEGATRON_PYTHON", sys.executable)
    sizes = ["--micro-batch-size", rows, "--global-batch-size", 2 * rows, "--seq-length", length]
    sizes += ["--max-position-embeddings", length]
    script = str(MEGATRON / "pretrain_on_cpu.py")
    program = Program(build, directory, python, [script, *TINY.split(), *map(str, sizes)], (MEGATRON,))
    program.require("megatron.core", "megatron.training")
    return program


def megatron_losses(done: Finished) -> list[float]:
    return [float(found) for found in re.findall(r"lm loss: (\S+)", done.out)]


@pytest.mark.megatron
def test_megatron_takes_smaller_micro_batches(build: Path, tmp_path: Path) -> None:
    program = megatron(build, tmp_path, 8, 128)
    plain = megatron_losses(program.start())
    assert len(plain) == 10
    ended, document = program.expect_fit("24M")
    for done in ended:
        assert megatron_losses(done) == pytest.approx(plain, rel=1e-5)
    expect_smaller(document, "megatron")


@pytest.mark.megatron
def test_megatron_s_layers_are_recomputed_in_the_memory_that_is_predicted(build: Path, tmp_path: Path) -> None:
    """They keep one of their tensors until their next forward pass."""
    program = megatron(build, tmp_path, 1, 512)
    plain = megatron_losses(program.start())
    ended, document = program.expect_fit("32M")
    for done in ended:
        assert megatron_losses(done) == plain
    assert any(path.startswith("decoder.layers.") for path in document["chosen"]["recompute"])
