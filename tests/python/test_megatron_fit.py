"""bench/megatron/fit.py under a card: nothing is measured without it, and each mode recomputes until it trains."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from processes import ROOT

pytest.importorskip("torch")
MEGATRON = ROOT / "bench" / "megatron"
NEEDED = {"alloc": 1, "native": 3, "expandable": 2}  # layers that have to be recomputed


class MadeUp:
    """A Comparison whose runs train with enough layers recomputed; the trace needs what Alloc does."""

    ran: ClassVar[list[str]] = []

    def __init__(self, common: Any, workload: str, modes: list[str], *, extra: list[str], **_: Any) -> None:
        words = "--recompute-num-layers"
        self.layers = int(extra[extra.index(words) + 1]) if words in extra else 0.5 * ("core_attn" in extra)
        self.modes, self.results, self.exact = modes, {}, False
        assert "--card" in extra

    def run(self, mode: str) -> dict[str, Any]:
        MadeUp.ran.append(f"{mode} {self.layers}")
        assert mode != "trace" or self.exact, "what Alloc can hold is traced"
        trains = self.layers >= NEEDED["alloc" if mode == "trace" else mode]
        result = {"exit_code": 0 if trains else 3, "out_of_memory": not trains, "losses": [], "ranks": []}
        self.results[mode] = {**result, "wall_seconds": 1.0}
        return self.results[mode]

    def document(self) -> dict[str, Any]:
        return {"rows": [{"mode": mode, "held_bytes": 1 << 30, "live_bytes": 1 << 29} for mode in self.modes]}


def test_each_mode_recomputes_until_it_trains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for place in (MEGATRON, MEGATRON.parent):
        monkeypatch.syspath_prepend(str(place))
    import fit  # type: ignore[import-not-found]

    monkeypatch.setattr(fit, "Comparison", MadeUp)
    asked: list[tuple[int, int, str]] = []

    def predicted(traced: Any, micro_batch: int, count: int, recomputed: str) -> dict[str, Any]:
        assert (traced.micro_batch, traced.second, traced.second_micro_batch) == (4, tmp_path / "two", 2)
        asked.append((micro_batch, count, recomputed))
        return {"live_bytes": [1 << 30], "step_seconds": 0.1}

    monkeypatch.setattr(fit, "predicted", predicted)
    monkeypatch.setattr(fit, "quiet_steps_ms", lambda _: [50.0, 150.0])
    MadeUp.ran = []
    chosen = SimpleNamespace(
        **{"workload": "pp2-vpp4", "card": 79 << 30, "output": tmp_path, "report": tmp_path / "out"},
        **{
            "size": "h200-short",
            "megatron": ["--micro-batch-size", "8", "--global-batch-size", "32"],
        },
        **{"least_recomputed": 0, "most_recomputed": 3, "selective": True, "iterations": 10},
        **{"traced": tmp_path, "traced_micro_batch": 4, "beside": [str(tmp_path / "two"), "2"]},
    )
    assert fit.Fit(chosen).run()
    assert asked == [(8, 4, ""), (8, 4, r"\.core_attention$"), (8, 4, r"\.layers\.(0)$")]
    assert MadeUp.ran == [
        *("trace 0.0", "trace 0.5", "trace 1", "alloc 1"),
        *("expandable 1", "expandable 2"),
        *("native 1", "native 2", "native 3"),
    ], "what cannot be traced fits in no other mode"
    assert fit.Fit(chosen).run()
    assert len(MadeUp.ran) == 9, "what is in the file is not run again"
    chosen.iterations = 12
    fit.Fit(chosen).run()
    assert len(MadeUp.ran) == 18, "other steps are other runs"
    document = json.loads((tmp_path / "out" / "fit.json").read_text())
    best = {run["mode"]: run for run in document["runs"] if run["trained"]}
    assert {mode: run["recomputed_layers_of_a_chunk"] for mode, run in best.items()} == NEEDED
    assert best["alloc"]["tokens_per_second"] == pytest.approx(32 * 2048 / 0.1), "the last global batch counts"
    for name in ("fit", "compare", "predicted", "workloads", "figures", "ranks", "card"):
        sys.modules.pop(name, None)


def test_a_trace_is_compared_with_the_same_rank_s(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(MEGATRON))
    import predicted  # type: ignore[import-not-found]

    for name, ranks in (("four", (0, 1)), ("two", (1,))):
        (tmp_path / name / "trace").mkdir(parents=True)
        for rank in ranks:
            (tmp_path / name / "trace" / f"rank{rank:05d}.trace").touch()
    traced = predicted.Traced(tmp_path / "four", 4, tmp_path / "two", 2)
    run = traced.run(tmp_path / "four" / "trace" / "rank00001.trace")
    assert (run.beside, run.ratio, run.rows) == (tmp_path / "two" / "trace" / "rank00001.trace", 0.5, 0.5)
    with pytest.raises(Exception, match=r"two: expected rank00000\.trace, as .*four has, found .*rank00001"):
        traced.run(tmp_path / "four" / "trace" / "rank00000.trace")
    sys.modules.pop("predicted", None)
