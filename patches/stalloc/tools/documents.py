"""What `--json` of each command prints, as types. Bytes and seconds; docs/report-json.md says what the keys mean.

`scripts/reference` makes docs/json-schema.json of DOCUMENTS, and tests/python/test_documents.py holds what commands
print against it. Tables of columns are equally long lists; what the planner or the library wrote is Written.
"""

from __future__ import annotations

from typing import Any, Optional, TypedDict

from stalloc.tools.doctor.machine import Finding
from stalloc.tools.report.advice import Advice
from stalloc.tools.report.certainty import CertaintyDocument
from stalloc.tools.snapshot.iterations import Pile

Written = dict[str, Any]
Columns = dict[str, Any]


_OfClass = TypedDict("_OfClass", {"class": str})


class LeakGroup(_OfClass):
    bytes: int
    most_bytes: int
    phase: str
    layer: str
    call_site: str
    calls: str
    since_iteration: int
    blocks_per_iteration: float
    bytes_per_iteration: int
    live: list[int]


class LiveAtBegin(TypedDict):
    iteration: int
    bytes: int


class DeviceLeaks(TypedDict):
    device: int
    iterations: int
    judged_iterations: int
    needed_iterations: int
    enough_iterations: bool
    live_at_begin: list[LiveAtBegin]
    bytes_per_iteration: int
    groups: list[LeakGroup]


class Leaks(TypedDict):
    rank: int
    truncation: Optional[str]
    devices: list[DeviceLeaks]


class GraphFinding(TypedDict):
    graphs: int
    pools: int
    unknown_pools: int
    pools_bytes: int
    dead_bytes: int
    carried_bytes: int
    kept_bytes: int
    saves_bytes: int
    cycle_saves_bytes: int
    held_bytes: int
    held_apart_bytes: int
    why: str
    how_to: str
    told: list[str]


class DeviceAdvice(TypedDict):
    device: int
    peak_live_bytes: int
    peak_phase: str
    peak_often: str
    worth: str
    inside: Optional[str]
    advice: list[Advice]
    graphs: Optional[GraphFinding]
    hint: Optional[str]


class Advised(TypedDict):
    rank: int
    truncation: Optional[str]
    devices: list[DeviceAdvice]


class MicroBatchFit(TypedDict):
    unpaired_bytes: int
    fixed_bytes: int
    proportional_bytes: int
    affine_bytes: int
    square_bytes: int
    other_peak_bytes: int
    micro_batch: int
    fitted_peak_bytes: int


class AllocatorFits(TypedDict):
    name: str
    held_bytes: int
    fits: bool
    largest_scale: float
    largest_micro_batch: int


class Change(TypedDict):
    what: str
    how_to: str
    cost: str
    saves_bytes: int
    peak_bytes: int
    at_least: bool
    fits: list[str]


class GraphNeeds(TypedDict):
    peak_live_bytes: int
    needed_bytes: int
    held_bytes: int
    seconds: Optional[float]


class GraphRun(GraphNeeds):
    run: str


_GraphRuns = TypedDict("_GraphRuns", {"with": GraphRun, "without": GraphRun})


class GraphChoice(_GraphRuns):
    change: GraphNeeds
    how_timed: Optional[str]
    memory_bytes: int
    fits: list[str]
    capture_bytes: int
    capture_fits: bool


class DeviceWhatIf(TypedDict):
    memory_bytes: int
    device: int
    peak_live_bytes: int
    peak_of_twice: int
    fit: Optional[MicroBatchFit]
    certainty: CertaintyDocument
    allocators: list[AllocatorFits]
    worth: str
    changes: list[Change]
    graphs: Optional[GraphChoice]


class WhatIf(TypedDict):
    rank: int
    truncation: Optional[str]
    devices: list[DeviceWhatIf]


class ChangedBytes(TypedDict):
    before: int
    after: int
    change: int


class Changed(TypedDict):
    name: str
    before: Optional[int]
    after: Optional[int]
    change: int


class ChangedText(TypedDict):
    before: str
    after: str


class ChangedBlocks(_OfClass):
    layer: str
    phase: str
    bytes: int
    before: int
    after: int
    change: int


class Difference(TypedDict):
    peak_live_bytes: ChangedBytes
    peak_phase: ChangedText
    by_class: list[Changed]
    by_layer: list[Changed]
    by_call_site: list[Changed]
    blocks: list[ChangedBlocks]
    phases: list[Changed]
    allocators: list[Changed]
    plan: list[Changed]
    not_compared: list[str]


class FitTraced(TypedDict):
    peak_live_bytes: int
    step_seconds: float


class _Chosen(TypedDict):
    micro_batch: int
    accumulation: int
    tokens_of_a_step: float
    recompute: list[str]
    offload: list[str]
    offload_state: bool
    graphs: Optional[bool]
    stores: bool


class FitChosen(_Chosen, total=False):
    sequence_length: int


class FitGraphs(TypedDict):
    held_bytes: int
    fit: bool
    traced: Optional[dict[str, int]]


class FitHost(TypedDict):
    available_bytes: Optional[int]
    needed_bytes: int
    binds: bool


class FitPredicted(TypedDict):
    peak_live_bytes: int
    held_bytes: dict[str, int]
    step_seconds: float
    step_at_least: bool
    step_bound: Optional[str]
    host_share: Optional[float]
    tokens_per_second: float
    graphs: FitGraphs


class FitTried(TypedDict):
    micro_batch: int
    accumulation: int
    recompute: list[str]
    offload: list[str]
    offload_state: bool
    graphs: Optional[bool]
    fits: bool
    peak_live_bytes: int
    held_bytes: Optional[dict[str, int]]
    step_seconds: float
    tokens_per_second: float
    bound: str


class FitCandidate(TypedDict):
    layers: str
    use: str
    count: int
    away_bytes: int
    peak_live_bytes: int
    seconds: float
    at_least: bool


class FitBatch(TypedDict):
    framework: Optional[str]
    micro_batch: int
    accumulation: int


class FitModel(TypedDict):
    kind: str
    parameters: int
    traced_as: Optional[str]
    recompute: list[str]
    offload: list[str]


class FitAutomatic(TypedDict):
    models: list[FitModel]
    own: Optional[FitBatch]
    batch: Optional[FitBatch]
    fake: bool
    made_for: Written
    sources: dict[str, str]


_FitFor = TypedDict("_FitFor", {"for": str})


class _KeptFit(_FitFor, total=False):
    automatic: FitAutomatic  # in the files that `stalloc run --fit` keeps


class FitBus(TypedDict):
    bytes_per_second: float
    measured: bool


class Fit(_KeptFit):
    version: int
    run: str
    device: int
    memory_bytes: int
    headroom_bytes: int
    room_bytes: int
    allocator: str
    micro_batch: int
    accumulation: int
    truncation: Optional[str]
    fits: bool
    traced: FitTraced
    chosen: FitChosen
    predicted: FitPredicted
    host: FitHost
    certainty: CertaintyDocument
    bound: str
    settings: Written
    tried: list[FitTried]
    candidates: list[FitCandidate]
    bus: FitBus
    graphs: Optional[GraphChoice]


class RankDevice(TypedDict):
    device: int
    peak: Written
    traced_held_peak_bytes: int
    traced_efficiency: float
    simulated: dict[str, float]
    graphs: Optional[Written]
    segments: list[Written]
    phases: list[Written]
    streams: list[Written]
    plan: Optional[Written]
    forecast: Optional[Written]
    warnings: list[str]
    notes: list[str]


class RankReport(TypedDict):
    rank: int
    fingerprint: Written
    events: int
    trace_complete: bool
    seconds: float
    same_as_rank: Optional[int]
    equal_to_rank: Optional[int]
    marks: dict[str, int]
    warnings: list[str]
    notes: list[str]
    devices: list[RankDevice]


class PlannedRank(TypedDict):
    rank: int
    ok: bool
    error: str
    plan: str
    seconds: float
    report: Optional[RankReport]


class Planned(TypedDict):
    ranks: list[PlannedRank]
    ok: bool


class Figures(TypedDict):
    device: int
    peak_live_bytes: int
    peak_phase: str
    by_class: dict[str, int]
    allocators: list[Written]


class RankRow(TypedDict):
    rank: int
    place: str
    device: int
    peak_live_bytes: int
    peak_phase: str
    by_class: dict[str, int]
    native_bytes: int
    expandable_segments_bytes: int
    traced_bytes: Optional[int]
    planned_bytes: Optional[int]
    run_bytes: Optional[int]
    requests: int
    dynamic_bytes: int
    tokens: Optional[int]
    uneven: Optional[float]


class ViewDevice(TypedDict):
    device: int
    worth: str
    events: int
    end_ns: int
    roles: list[str]
    layers: list[str]
    phases: Columns
    timeline: Columns
    peak_timeline: Columns
    near_peak: Columns
    held: Columns
    peak: Columns
    top_blocks: Columns
    unused: Optional[Columns]
    growth: Columns
    blocks: Optional[Columns]
    stacks: Columns
    layer_table: Columns
    alternatives: Columns
    scaling: Columns
    fit: Optional[dict[str, int]]
    iterations: Columns
    graph_pools: Optional[Columns]
    plan: Optional[Columns]


class NamedBytes(TypedDict):
    name: str
    bytes: int


class Card(TypedDict):
    total_bytes: int
    driver_bytes: Optional[int]
    free_bytes: int
    rows: list[NamedBytes]
    sum_bytes: int
    measured_bytes: Optional[int]
    sentence: str


class _View(TypedDict):
    rank: RankReport
    classes: list[str]
    devices: list[ViewDevice]
    replicas: int
    place: str
    megatron_arguments: Optional[Written]
    summary: Optional[Written]
    added_options: list[str]
    estimate: Optional[list[Written]]
    figures: list[Figures]
    advice: list[list[Advice]]
    graphs: list[Optional[GraphFinding]]
    best_changes: list[list[Advice]]
    peak_often: list[str]
    inside: list[Optional[str]]
    hints: list[list[str]]
    iterations: list[list[Written]]
    correlation: list[Optional[float]]
    leaks: list[DeviceLeaks]
    card: list[Optional[Card]]


class View(_View, total=False):
    equal_to: int


class Report(TypedDict):
    ranks: list[RankRow]
    views: list[View]


class Outcome(TypedDict):
    mode: str
    peak_live_bytes: int
    held_peak_bytes: int
    efficiency: float
    served: str
    native_bytes: Optional[int]
    native_unknown: str
    share: Optional[float]
    needed_bytes: Optional[int]
    was_short: bool
    saved_bytes: Optional[int]


class Summary(TypedDict):
    rank: int
    outcome: Optional[Outcome]
    summary: Written


class RunStages(TypedDict):
    rank: int
    stages: list[Written]
    state: Optional[Written]


class Status(TypedDict):
    directory: str
    ranks: list[RunStages]
    summaries: list[Summary]


class KeptRun(TypedDict):
    name: str
    directory: str
    program: Optional[str]
    torch: Optional[str]
    arguments: list[list[str]]
    ranks: list[int]
    signatures: list[Written]
    bytes: int
    used: str
    in_use: bool


class KeptRuns(TypedDict):
    directory: str
    runs: list[KeptRun]


class Doctor(TypedDict):
    ok: bool
    findings: list[Finding]
    installed: Written


class Exported(TypedDict):
    output: str
    format: str
    bytes: int


class Imported(TypedDict):
    allocations: int
    events: int
    trace: str
    iterations: int
    source: str
    pile: Optional[Pile]
    earlier_blocks: int
    notes: list[str]


class _SleptProcess(TypedDict):
    pid: int
    ok: bool


class SleptProcess(_SleptProcess, total=False):
    error: str
    result: Written


class Slept(TypedDict):
    processes: list[SleptProcess]


class _OomReport(TypedDict):
    report: str
    version: int
    stalloc_version: str
    rank: int
    pid: int
    device: int
    request: dict[str, int]
    device_memory: Optional[dict[str, int]]
    figures: Written
    plan: Optional[Written]
    live_blocks: list[Written]
    live_blocks_omitted: int
    events: list[Written]
    notes: list[str]


class OomReport(_OomReport, total=False):
    mode: str
    phase: str
    trace: str


# Commands whose --json is a document, as they are typed.
DOCUMENTS: dict[str, type] = {
    "plan": Planned,
    "report": Report,
    "report --leaks": Leaks,
    "advise": Advised,
    "whatif": WhatIf,
    "diff": Difference,
    "fit": Fit,
    "status": Status,
    "doctor": Doctor,
    "oom": OomReport,
    "runs": KeptRuns,
    "import": Imported,
    "export": Exported,
    "sleep": Slept,
    "wake": Slept,
}
