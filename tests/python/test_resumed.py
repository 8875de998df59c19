"""A run resumed from a checkpoint under the plan of a run from scratch: its state gets the places planned for it."""

from __future__ import annotations

import json
from typing import Any

from processes import SCRIPTS, Training

CHUNK = 2 << 20  # bytes by which the arena grows


def train(training: Training, mode: str, *arguments: str) -> dict[str, Any]:
    output = training.directory / "result.json"
    program = ("-m", "stalloc", "run", str(SCRIPTS / "resumed_training.py"))
    training.start_plain(mode, *program, *arguments, "--json", str(output)).good()
    result: dict[str, Any] = json.loads(output.read_text())
    return result


def steady_hit_rate(result: dict[str, Any]) -> float:
    steady = result["figures"]["devices"][0]["steady"]
    assert steady["requests"] > 100
    return float(steady["hits"] / steady["requests"])


def test_a_resumed_run_is_served_as_one_from_scratch(training: Training) -> None:
    train(training, "Trace", "--iterations", "4")
    training.try_plan("--time-limit", "1").good()
    checkpoint = str(training.directory / "checkpoint.pt")
    scratch = train(training, "Alloc", "--iterations", "7", "--save", checkpoint, "--save-at", "3")
    resumed = train(training, "Alloc", "--iterations", "7", "--load", checkpoint)
    assert resumed["losses"] == scratch["losses"][3:]
    assert steady_hit_rate(resumed) >= 0.99  # from its second iteration on
    held = [result["figures"]["devices"][0]["arena_bytes"] for result in (scratch, resumed)]
    assert held[1] <= held[0] + CHUNK  # on a CPU what is read from the checkpoint counts, too
    # In its first iteration, too, nobody is planned where the state is, though a run from scratch makes it at its end.
    before, after = (figures["devices"][0] for figures in resumed["around_first"])
    assert after["arena_bytes"] == before["arena_bytes"]
    requests, hits = (after[key] - before[key] for key in ("requests", "planned_hits"))
    assert hits >= 0.99 * requests > 100
