"""The request of `over_training`, the stages of its checkpoints, and how a process finds its stage again."""

import dataclasses
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any

import numpy as np

from infoflow.corpus import Corpus
from infoflow.engine import Engine, InTurn, local_engine
from infoflow.flow import AbstractMeasure, is_first, processes
from infoflow.foundation import OwnWords, Processes, UserError, atomic_write, digest, read_object, read_setting
from infoflow.models import Model
from infoflow.results import RunFolder
from infoflow.studies._analyze import corpus_of
from infoflow.studies._external import AnalyzeOptions, ExternalModel
from infoflow.studies._measures import light_tables, named_measures, standard_measures
from infoflow.studies._plan import build_settings
from infoflow.studies._result_cache import ResultCache
from infoflow.studies.stages import AbstractStage, LoadedOnce
from infoflow.training import checkpoint_steps

from ..measures import (
    AMONG_CHECKPOINTS,
    Ahead,
    CheckpointSeries,
    FolderPlace,
    LayerConvergence,
    SuiteCheckpoint,
    parse_steps,
    read_series,
)
from ._measure_checkpoint import COMPARED_WITH
from ._series import MeasureSuiteCheckpoint, WeighCheckpoint

ALL = "all"  # stands for the names of all tables
REFERENCES = ("final", "previous", "initial")
_FROM_HUB = ("final", "initial")
_INDEX = "stages.json"
_ENTRY = f"{__name__}:series_stage_of"
_PRELOAD = ("torch", "transformers", "infoflow.studies.stages")


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class SeriesOptions:
    """The user's request as plain values, kept in run.json."""

    sources: tuple[str, ...]
    options: AnalyzeOptions
    steps: OwnWords = ()
    check: bool = False
    keep_downloads: bool = False
    include_suspect: bool = False
    heavy: tuple[str, ...] = ()
    heavy_steps: str = "linear:4"
    references: tuple[str, ...] = ()

    def plan(self) -> dict[str, Any]:
        """Values that determine whether the folder's tables belong to this call, and which tables the call computes."""
        plan = dataclasses.asdict(self)
        return {"models": plan.pop("sources"), **plan}

    @classmethod
    def of(cls, plan: dict[str, Any]) -> "SeriesOptions":
        """Restore the options from the JSON of `plan`."""
        values = {name: tuple(value) if isinstance(value, list) else value for name, value in plan.items()}
        options = build_settings(AnalyzeOptions, values.pop("options"))
        return cls(sources=values.pop("models"), options=options, **values)

    def series(self) -> list[CheckpointSeries]:
        found = read_series(self.sources, parse_steps(self.steps))
        if not self.options.anonymous:
            return found
        return [
            dataclasses.replace(one, name=f"model-{number}")
            if any(isinstance(checkpoint.place, FolderPlace) for checkpoint in one.checkpoints)
            else one
            for number, one in enumerate(found, start=1)
        ]


def settings_digest(plan: Any) -> str:
    """Digest of a plan without the settings that only select tables."""
    if not isinstance(plan, dict) or not isinstance(plan.get("options"), dict):
        return digest(plan)
    choosing = ("check", "keep_downloads", "heavy", "heavy_steps", "references")
    kept = {name: value for name, value in plan.items() if name not in choosing}
    return digest({**kept, "options": {**plan["options"], "only": None, "anonymous": None}})


class SeriesStages:
    """Creates the stages of the requested checkpoints."""

    def __init__(self, request: SeriesOptions, run: RunFolder) -> None:
        self.options = request
        light = _light(request.options)
        heavy = _heavy(request, light)  # also checked if nothing is measured
        self.light, self.heavy = ([], []) if request.check else (light, heavy)
        if unknown := [name for name in request.references if name not in REFERENCES]:
            raise UserError(f"--reference must be among {', '.join(REFERENCES)}. Got {unknown[0]}.")
        self._run, self.bench = run, ResultCache(run.path / "work")

    @cached_property
    def corpus(self) -> Corpus:
        return corpus_of(self.options.options, ())

    def check(self, series: Sequence[CheckpointSeries]) -> None:
        """Refuse settings that these checkpoints do not allow."""
        for one in series:
            checkpoint_steps(self.options.heavy_steps, max(one.updates, 1))  # also if nothing is measured
            wanted = self.options.references
            if all(each.place.is_here for each in one.checkpoints):
                continue
            if len(wanted) * len(series) > 1 or any(name not in _FROM_HUB for name in wanted):
                raise UserError(
                    f"At most two revisions of a hub model are on disk at a time: for {one.name} --reference must be "
                    f"either final or initial, and it must be the only series. Got {', '.join(wanted)} for "
                    f"{len(series)} series."
                )

    def weigh(self, series: CheckpointSeries, checkpoint: SuiteCheckpoint) -> WeighCheckpoint:
        return WeighCheckpoint(
            checkpoint=checkpoint,
            series=series.name,
            bench=self.bench,
            options=self.options.options,
            corpus=self.corpus,
            keep_downloads=self.options.keep_downloads,
        )

    def measure(
        self, series: CheckpointSeries, left: Sequence[SuiteCheckpoint], at: int, ahead: Ahead | None = None
    ) -> MeasureSuiteCheckpoint:
        """The stage of checkpoint number `at` among those `left` of a series."""
        checkpoint, options = left[at], self.options.options
        start = left[0] if at and left[0].update == 0 else None
        named = {"final": left[-1], "previous": left[at - 1] if at else None, "initial": start}
        others = {name: one for name in self.options.references if (one := named[name]) is not None}
        loaded = LoadedOnce[SuiteCheckpoint](self._load)
        return MeasureSuiteCheckpoint(
            weighing=self.weigh(series, checkpoint),
            passes=options.measures.passes(seed=options.seed, max_length=options.max_length),
            measures=[
                *self.light,
                *(self.heavy if checkpoint.update in self._heavy_steps(left) else []),
                *_comparisons(options, others, loaded),
            ],
            loaded=loaded,
            ahead=ahead,
            tells=at == 0,
        )

    @contextmanager
    def references_held(self, left: Sequence[SuiteCheckpoint]) -> Iterator[bool]:
        """Fetch the hub revision with which all others are compared, once; yield whether there is one."""
        named = {"final": left[-1], "initial": left[0]}
        held = [named[name] for name in self.options.references if name in named and not named[name].place.is_here]
        if not held:
            yield False
            return
        with held[0].place.opened(self.options.keep_downloads):
            yield True

    def _heavy_steps(self, left: Sequence[SuiteCheckpoint]) -> set[int]:
        """The checkpoint steps nearest to those of the schedule."""
        steps = np.array([one.update for one in left])
        wanted = checkpoint_steps(self.options.heavy_steps, max(int(steps.max()), 1)) if self.heavy else []
        return {int(steps[np.argmin(np.abs(steps - step))]) for step in wanted}

    def _load(self, checkpoint: SuiteCheckpoint) -> Model:
        with checkpoint.place.opened(self.options.keep_downloads) as folder:
            return ExternalModel(source=str(folder), name=checkpoint.name, trained=True).load(self.options.options)

    # -- processes ----------------------------------------------------------------------------------------------------

    def engine(self, jobs: int | None, series: Sequence[CheckpointSeries]) -> Engine:
        """An engine with one process, or with the requested number."""
        number = read_setting(Processes, jobs, "--processes") if jobs is not None else 1
        if jobs is not None and number < 1:
            raise UserError(f"--processes must be at least 1. Got {jobs}.")
        if number == 1 or processes()[1] > 1:
            return InTurn()
        if away := [one.name for one in series if not all(each.place.is_here for each in one.checkpoints)]:
            raise UserError(
                "--processes above 1 needs local checkpoints: at most two revisions of a hub model are on disk at a "
                f"time. Got {number} for {away[0]}. Leave --processes out: the next revision is fetched while one is "
                "measured."
            )
        return local_engine(number, _PRELOAD, folder=self._run.path, entry=_ENTRY)

    def note(self, stages: Mapping[str, AbstractStage], left: Mapping[str, Sequence[SuiteCheckpoint]]) -> None:
        """Record where each stage can be found again: its series, index, and the series' remaining checkpoints."""
        if not is_first():
            return
        places = {}
        for key, stage in stages.items():
            weighing = stage.weighing if isinstance(stage, MeasureSuiteCheckpoint) else stage
            assert isinstance(weighing, WeighCheckpoint)
            places[key] = {"kind": stage.kind, "series": weighing.series, "checkpoint": weighing.checkpoint.name}
        names = {name: [one.name for one in checkpoints] for name, checkpoints in left.items()}
        with atomic_write(self._run.path / "work" / _INDEX) as path:
            path.write_text(json.dumps({"stages": places, "left": names}), encoding="utf-8")


def series_stage_of(folder: str, key: str) -> AbstractStage:
    """The stage with this key, for a process of an engine; only the files of its checkpoints are read."""
    run = RunFolder.existing(folder)
    try:
        noted = read_object(run.path / "work" / _INDEX)
        place = noted["stages"][key]
        if not {"series", "kind", "checkpoint"} <= place.keys():
            raise KeyError(key)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        raise UserError(f"{folder} has no stage {key}: it has changed. Run the same command again.") from None
    request = SeriesOptions.of(run.read()["plan"])
    stages = SeriesStages(request, run)
    series = next(one for one in request.series() if one.name == place["series"])
    by_name = {one.name: one for one in series.checkpoints}
    if place["kind"] == WeighCheckpoint.kind:
        found: AbstractStage = stages.weigh(series, by_name[place["checkpoint"]])
    else:
        left = [by_name[name] for name in noted["left"][series.name]]
        found = stages.measure(series, left, left.index(by_name[place["checkpoint"]]))
    if found.key != key:
        raise UserError(f"{place['checkpoint']} of {series.name} has changed. Run the same command again.")
    return found


def _light(options: AnalyzeOptions) -> list[AbstractMeasure]:
    """The named measures, by default the light ones of a single checkpoint."""
    if options.only == (ALL,) or (not options.only and options.measures.tables):
        return standard_measures(options.measures)
    light = [name for name in light_tables() if name not in AMONG_CHECKPOINTS]
    return named_measures(options.measures, options.only or light)


def _heavy(request: SeriesOptions, light: Sequence[AbstractMeasure]) -> list[AbstractMeasure]:
    names = {measure.name for measure in light}
    found = named_measures(request.options.measures, request.heavy, "--heavy") if request.heavy else []
    return [measure for measure in found if measure.name not in names]


def _comparisons(
    options: AnalyzeOptions, others: Mapping[str, SuiteCheckpoint], loaded: LoadedOnce[SuiteCheckpoint]
) -> list[AbstractMeasure]:
    """The measures that compare checkpoints, as far as their references exist."""

    def of(names: Sequence[str]) -> dict[str, SuiteCheckpoint]:
        return {name: others[name] for name in names if name in others}

    def key(named: Mapping[str, SuiteCheckpoint]) -> list[str]:
        return [f"{name} {one.place.identity()}" for name, one in named.items()]

    if not others:
        return []
    every = of(REFERENCES)
    occurrences = options.measures.distance_occurrences
    measures: list[AbstractMeasure] = [LayerConvergence(loaded.named(every), key(every), occurrences)]
    for kind, names in COMPARED_WITH.items():
        if named := of(names):
            measures.append(kind(loaded.named(named), key(named)))
    return measures
