"""The processes of runs of bench/megatron and bench/worth: each knows its rank, and which GPU is its own."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench"))

from ranks import run_ranks

NAMES = ["RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "NCCL_HOSTID", "OF_ALL"]
SCRIPT = f"""
import json, os, sys
place = {{name: os.environ.get(name) for name in {NAMES}}}
open(os.path.join(sys.argv[1], os.environ["RANK"]), "w").write(json.dumps(place))
"""


@pytest.mark.parametrize(
    ("share_gpus", "last"),
    [
        (0, {"LOCAL_RANK": "3", "LOCAL_WORLD_SIZE": "4", "NCCL_HOSTID": None}),
        (1, {"LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1", "NCCL_HOSTID": "node3"}),
        (2, {"LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2", "NCCL_HOSTID": "node1"}),
        (8, {"LOCAL_RANK": "3", "LOCAL_WORLD_SIZE": "4", "NCCL_HOSTID": None}),
    ],
)
def test_each_rank_knows_its_place(tmp_path: Path, share_gpus: int, last: dict[str, str | None]) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    environment = {**os.environ, "OF_ALL": "same"}
    code, said = run_ranks(
        [str(script), str(tmp_path)],
        4,
        environment,
        tmp_path / "logs",
        port=29999,
        limit_seconds=60,
        share_gpus=share_gpus,
    )
    assert code == 0, said
    places = [json.loads((tmp_path / str(rank)).read_text()) for rank in range(4)]
    assert [place["RANK"] for place in places] == ["0", "1", "2", "3"]
    assert all(place["WORLD_SIZE"] == "4" and place["OF_ALL"] == "same" for place in places)
    assert places[-1].items() >= last.items()


def test_where_one_rank_fails_the_others_are_ended(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("import os, time\nos.environ['RANK'] == '1' and exit(7)\ntime.sleep(60)\n")
    code, _ = run_ranks([str(script)], 2, os.environ, tmp_path / "logs", port=29999, limit_seconds=30)
    assert code == 7
    script.write_text("import time\ntime.sleep(60)\n")
    code, _ = run_ranks([str(script)], 1, os.environ, tmp_path / "logs", port=29999, limit_seconds=1)
    assert code == 124
