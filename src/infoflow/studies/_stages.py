"""The stages of a study for other engines: a list of them, and running a single one."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

from infoflow.engine import InTurn
from infoflow.foundation import UserError, lock_file, private_settings, provenance
from infoflow.results import RunFolder

from ._graph import Graph, graph, records, run_stages
from ._plan import StudyPlan, stored_plan
from ._study import only_one, stage_of, stored_graph


def list_stages(run: RunFolder, plan: StudyPlan | None = None) -> list[dict[str, Any]]:
    """The stages of a run's plan, each after those that it needs, as plain values.

    With a `plan`, the run folder is prepared for it: keys depend on the split sentences and tokenizers. Each stage has
    `key`, `label`, `kind`, `needs` (keys), `done` (never for the last one, which judges claims), `cost` (seconds;
    estimated until a stage of its kind has run), `memory` (bytes at its peak, or the median of its kind; null until one
    has run), `threads` and `gpus` (0 on a CPU; a share if stages share a GPU).
    """
    if plan is None:
        return _listed(graph(stored_plan(run, run_code=True), run, prepared=True))
    with only_one(run):
        run.update(
            kind="study", title=plan.title, plan=plan.to_json(), **private_settings(StudyPlan), provenance=provenance()
        )
        return _listed(graph(plan, run))


def _listed(stages: Graph) -> list[dict[str, Any]]:
    known = records(stages.folder)
    peaks: dict[str, list[int]] = {}
    for record in known.values():
        peaks.setdefault(record["kind"], []).append(record["peak_memory"])
    return [
        {
            "key": stage.key,
            "label": stage.label,
            "kind": stage.kind,
            "needs": list(stage.needs),
            "done": stage.is_done(),
            "cost": round(stage.cost, 2),
            "memory": known.get(stage.key, {}).get("peak_memory") or _typical(peaks.get(stage.kind, [])),
            "threads": stage.threads,
            "gpus": stage.resources.get("GPU", 0),
        }
        for stage in stages
    ]


def _typical(peaks: list[int]) -> int | None:
    return int(median(peaks)) if peaks else None


def run_stage(folder: Path | str, key: str) -> bool:
    """Run one stage of a study's graph, whose needs must be done; false if it was done before.

    An interrupted stage continues where it saved. Its usage is recorded in the run folder as by `study`. Stages of one
    run may run at the same time, also on several machines that share the folder.

    Raises:
        UserError: There is no such stage, a stage that it needs is not done, it runs already, or it failed.
        KeyboardInterrupt: It was interrupted, and has saved what it can.
    """
    run = RunFolder.existing(folder)
    stage = stage_of(os.fspath(run.path), key)
    if stage.is_done():
        return False
    every = stored_graph(os.fspath(run.path))
    missing = [every[need].label for need in stage.needs if not every[need].is_done()]
    if missing:
        raise UserError(f"{stage.label} needs stages that are not done: {', '.join(missing[:4])}. Run them first.")
    with _alone(run, key):
        run_stages(Graph(stages=[stage], folder=run), run, InTurn(), title=stage.label)
    return True


@contextmanager
def _alone(run: RunFolder, key: str) -> Iterator[None]:
    """Hold the stage's lock; two runs of one stage at a time would overwrite each other's files."""
    path = run.path / "work" / "locks" / key
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8") as file:
        try:
            lock_file(file.fileno())
        except BlockingIOError:
            raise UserError(f"Stage {key} of {run.path} is running in another process. Wait for it.") from None
        yield
