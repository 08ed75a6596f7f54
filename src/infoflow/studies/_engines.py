"""Chooses the engine of a study, and finds a stage again in an engine's process."""

import os
from functools import lru_cache
from pathlib import Path

from infoflow.engine import Engine, InTurn, cluster_engine, local_engine
from infoflow.flow import processes
from infoflow.foundation import Threads, UserError, read_setting, thread_budget
from infoflow.results import RunFolder

from ._graph import Graph, graph
from ._plan import StudyPlan, stored_plan
from .stages import AbstractStage

_ENTRY = "infoflow.studies:stage_of"
_PRELOAD = ("torch", "transformers", "infoflow.studies.stages")


def engine_for(
    plan: StudyPlan, run: RunFolder, num_processes: int | None, cluster: str | None = None, insecure: bool = False
) -> Engine:
    """The engine for a study on this machine or a cluster."""
    if cluster:
        jobs = num_processes or 0
        return cluster_engine(cluster, run.path, entry=_ENTRY, preload=_PRELOAD, jobs=jobs, insecure=insecure)
    jobs = _jobs(plan, num_processes)
    return InTurn() if jobs == 1 else local_engine(jobs, _PRELOAD, folder=run.path, entry=_ENTRY)


def _jobs(plan: StudyPlan, wanted: int | None) -> int:
    """Number of concurrent stages: on a CPU as many as the threads allow, on a GPU as many as share it."""
    import torch

    if processes()[1] > 1:
        return 1
    if wanted is not None:
        return read_setting(Threads, wanted, "--processes")
    on_cpu = plan.training.device == "cpu" or (plan.training.device == "auto" and not torch.cuda.is_available())
    return max(1, thread_budget() // plan.engine.threads) if on_cpu else plan.engine.per_gpu


def stage_of(folder: str, key: str) -> AbstractStage:
    """The stage with that key in the graph of the run folder's plan, for a process of an engine.

    Raises:
        UserError: The plan in the folder has no such stage.
    """
    manifest = Path(folder) / "run.json"
    stages = _graph(os.fspath(folder), manifest.stat().st_mtime_ns)
    if key not in stages.by_key:
        raise UserError(f"The plan in {folder} has no stage {key}: it has changed. Run the same command again.")
    return stages[key]


@lru_cache(maxsize=1)
def _graph(folder: str, changed: int) -> Graph:
    run = RunFolder.existing(folder)
    return graph(stored_plan(run), run, prepared=True)
