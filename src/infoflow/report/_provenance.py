"""Provenance of the numbers: settings, versions, hashes, time per stage."""

import math
from dataclasses import dataclass
from typing import Any

from infoflow.results import RunFolder

from ._numbers import duration_text, listed


@dataclass(frozen=True, kw_only=True, slots=True)
class StageTime:
    """Duration and resource use of a study's stage."""

    label: str
    kind: str
    seconds: str
    cpu_seconds: str
    memory: str  # peak memory; "" if it was not measured
    share: float  # share of the longest stage, in percent


@dataclass(frozen=True, kw_only=True, slots=True)
class StageTimes:
    """All stages, the longest first, and the sum over each kind in words."""

    stages: list[StageTime]
    sums: str


def stage_times(run: RunFolder) -> StageTimes | None:
    """Time per stage; None if run.json has no times."""
    stages = sorted(run.read().get("stages") or [], key=lambda stage: -float(stage["seconds"]))
    if not stages:
        return None
    longest = float(stages[0]["seconds"]) or 1.0
    sums: dict[str, float] = {}
    for stage in stages:
        sums[str(stage["kind"])] = sums.get(str(stage["kind"]), 0.0) + float(stage["seconds"])
    largest = sorted(sums, key=lambda kind: -sums[kind])
    return StageTimes(
        stages=[_stage_time(stage, longest) for stage in stages],
        sums=listed([f"{kind} {duration_text(sums[kind])}" for kind in largest]),
    )


def _stage_time(stage: dict[str, Any], longest: float) -> StageTime:
    memory = float(stage.get("peak_memory") or 0)
    return StageTime(
        label=str(stage["label"]),
        kind=str(stage["kind"]),
        seconds=duration_text(float(stage["seconds"])),
        cpu_seconds=duration_text(float(stage.get("cpu_seconds", math.nan))),
        memory=f"{memory / 2**30:.1f} GiB" if memory else "",
        share=round(100 * float(stage["seconds"]) / longest, 1),
    )


def flattened(value: Any, prefix: str = "") -> list[tuple[str, str]]:
    """Nested settings as (dotted name, text) pairs, in order."""
    if isinstance(value, dict):
        return [
            pair for key, inner in value.items() for pair in flattened(inner, f"{prefix}.{key}" if prefix else str(key))
        ]
    if isinstance(value, list):
        return [(prefix, ", ".join(str(item) for item in value) or "none")]
    return [(prefix, str(value))]


def settings(run: RunFolder) -> dict[str, list[tuple[str, str]]]:
    """Groups of settings: plan, corpus, software and hardware, time."""
    manifest = run.read()
    timings = [(name, duration_text(float(seconds))) for name, seconds in manifest.get("timings", {}).items()]
    groups = {
        "Plan": flattened(manifest.get("plan", {})),
        "Corpus": flattened(manifest.get("corpus", {})),
        "Software and hardware": flattened(manifest.get("provenance", {})),
        "Time": timings,
    }
    return {name: pairs for name, pairs in groups.items() if pairs}
