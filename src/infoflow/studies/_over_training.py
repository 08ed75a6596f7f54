"""`over_training`: every table at every checkpoint of a training that is given, once its checkpoints are checked."""

import dataclasses
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pandas as pd

from infoflow.corpus import Corpus
from infoflow.engine import Engine
from infoflow.flow import is_first, wait_for_all
from infoflow.foundation import UserError, current_display, provenance
from infoflow.models import check_loading
from infoflow.over_training import (
    CONVERGENCE,
    COURSE_TABLES,
    SUFFIX,
    Ahead,
    CheckpointSeries,
    SeriesChecks,
    SuiteCheckpoint,
    course_tables,
    measured_over_training,
)
from infoflow.report import check_replaceable, write_report
from infoflow.results import RunFolder, TableSchema

from ._clock import WallClock, reset_clock, wall_clock
from ._given import AnalyzeOptions, exists
from ._graph import Graph
from ._over_training_shards import SHARD_KIND, gather_shards, of_shard
from ._run import Run
from ._run_stages import run_stages
from ._series_stages import SeriesOptions, SeriesStages, settings_of
from ._series_tables import CHECKPOINT_TABLES, MeasuredCheckpoint, checked, clocks, series_rows, subject_of
from ._study import only_one
from ._workbench import Part, stacked
from .stages import MeasureSuiteCheckpoint

KIND = "over-training"


def over_training(
    sources: Sequence[Path | str] | Path | str,
    options: AnalyzeOptions | None = None,
    out: Path | str = "runs/over-training",
    *,
    steps: Sequence[str] = (),
    check: bool = False,
    keep_downloads: bool = False,
    include_suspect: bool = False,
    heavy: Sequence[str] = (),
    heavy_steps: str = "linear:4",
    references: Sequence[str] = (),
    num_processes: int | None = None,
    shard: tuple[int, int] | None = None,
) -> Run:
    """Check the checkpoints of a training, measure each on the same sentences, and write a run folder with its report.

    A row at an update is bit for bit the row of `analyze` on that checkpoint's folder alone with the same settings.
    Checkpoints that a check calls an error are left out of all tables but `checkpoints` and `checkpoint_checks`. Each
    revision of a hub is fetched when its turn comes, and removed when it is measured; what the user had before stays.

    Args:
        sources: See `infoflow.over_training.read_series`: one or several.
        options: As of `analyze`; by default `LIGHT_TABLES` are computed, `only=("all",)` asks for all. No control is
            measured: step 0 is one.
        out: The run folder.
        steps: `NAME=STEP` for checkpoints whose names tell no step.
        check: Check, and measure nothing.
        keep_downloads: Leave fetched revisions in the hub's cache.
        include_suspect: Measure those too that a check calls an error, where they can be loaded.
        heavy: Further tables, dear ones, at the checkpoints next to `heavy_steps` alone.
        heavy_steps: A schedule, see `infoflow.over_training.checkpoint_steps`.
        references: What each checkpoint is compared with: final, previous, initial. Of revisions of a hub, which are
            removed behind each other, final or initial alone.
        num_processes: Checkpoints at a time, each in a process of its own; for those that lie on this machine.
        shard: (i, n): measure every n-th checkpoint and leave what was found in `out`, for `merge_over_training`.
            Checkpoints on this machine are all checked first: suspects are left out of all shards.

    Raises:
        UserError: A source, the corpus or a setting does not allow it, or fewer than two checkpoints are left.
    """
    given = [str(source) for source in ([sources] if isinstance(sources, str | Path) else sources)]
    if not given:
        raise UserError("Give at least one series of checkpoints: a folder that holds them, or a hub name with @all.")
    asked = SeriesOptions(
        sources=tuple(str(Path(source).resolve()) if exists(source) else source for source in given),
        options=dataclasses.replace(options or AnalyzeOptions(), control=False),
        steps=tuple(steps),
        check=check,
        keep_downloads=keep_downloads,
        include_suspect=include_suspect,
        heavy=tuple(heavy),
        heavy_steps=heavy_steps,
        references=tuple(dict.fromkeys(references)),
    )
    if shard is not None:
        of_shard(0, shard)
        if check:
            raise UserError("--check measures nothing, so it has no shards. Leave --shard out.")
    check_loading(asked.options.tokenizer, asked.options.device)
    return _followed(asked, RunFolder(out), num_processes, shard)


def merge_over_training(folders: Sequence[Path | str], out: Path | str) -> Run:
    """The run that shards from `over_training(..., shard=(i, n))` make up, written to `out`: that of one machine.

    The checkpoints have to be where the shards found them; what a shard did not measure of them is measured here.

    Raises:
        UserError: A folder holds no shard, or shards are missing or do not belong together.
    """
    run = RunFolder(out)
    _check_kind(run, KIND)
    return _followed(SeriesOptions.of(gather_shards(folders, run.path)), run, None, None)


def _followed(asked: SeriesOptions, run: RunFolder, num_processes: int | None, shard: tuple[int, int] | None) -> Run:
    stages = SeriesStages(asked, run)
    series = asked.series()
    _require_two(series)
    stages.check(series)
    engine = stages.engine(num_processes, series)
    with only_one(run):
        _open(run, asked, series, stages.corpus, shard)
        with wall_clock(run, save=is_first()) as clock:
            _Following(run, stages, series, engine, shard).follow(clock)
    return Run(run)


def _require_two(series: Sequence[CheckpointSeries]) -> None:
    for one in series:
        for note in one.notes:
            current_display().note(note)
        found = one.checkpoints
        if len({checkpoint.update for checkpoint in found}) >= 2 or len(found) >= 2:
            continue
        missing = f" Missing: {', '.join(each.name for each in one.missing[:8])}." if one.missing else ""
        if not found:
            raise UserError(f"{one.name} has no checkpoint that can be read.{missing}")
        place = getattr(found[0].place, "folder", one.name)
        raise UserError(
            f"Over training means at least two checkpoints. {one.name} has one, {found[0].name}.{missing}\n"
            f"To measure it alone: infoflow analyze {place}"
        )


def _check_kind(run: RunFolder, kind: str) -> dict[str, Any]:
    """What the folder says of itself; refuses one of another kind."""
    before = run.read()
    if before and before.get("kind") != kind:
        raise UserError(f"{run.path} holds a run of another kind ({before.get('kind')}). Choose another --out.")
    return before


def _open(
    run: RunFolder,
    asked: SeriesOptions,
    series: Sequence[CheckpointSeries],
    corpus: Corpus,
    shard: tuple[int, int] | None,
) -> None:
    """Note the plan in the run folder; tables of other settings are removed, so that a report never mixes two."""
    kind = KIND if shard is None else SHARD_KIND
    before = _check_kind(run, kind)
    plan = json.loads(json.dumps(asked.plan()))
    if is_first():
        check_replaceable(run.report)
        if before and settings_of(before.get("plan")) != settings_of(plan):
            run.tables.clear()
            reset_clock(run)
        names = ", ".join(one.name for one in series)
        run.update(anonymous=False, kind=kind, title=f"{names} over training", plan=plan)
        if shard is not None:
            run.update(shard=list(shard), corpus={"digest": corpus.digest})
    wait_for_all()


class _Following:
    """The stages of a call: checkpoints by what their results depend on, so that equal ones are measured once."""

    def __init__(
        self,
        run: RunFolder,
        made: SeriesStages,
        series: Sequence[CheckpointSeries],
        engine: Engine,
        shard: tuple[int, int] | None,
    ) -> None:
        self.run, self.asked, self.made, self.series, self.engine = run, made.asked, made, series, engine
        self.shard = shard
        self.corpus = made.corpus
        self.weighing = {
            (one.name, checkpoint.name): made.weigh(one, checkpoint) for one in series for checkpoint in one.checkpoints
        }
        self.left: dict[str, list[SuiteCheckpoint]] = {}  # of each series, to be measured

    def follow(self, clock: WallClock) -> None:
        """Check, measure, check again what had to be fetched first, write."""
        if self.asked.check or all(stage.checkpoint.place.is_here for stage in self.weighing.values()):
            self._run({stage.key: stage for stage in self.weighing.values()}, "Checks")
        stages = {} if self.asked.check else self._measure()
        if is_first() and self.shard is None:  # tables are of all shards
            self._write(stages, clock)
        wait_for_all()

    def _run(self, stages: Mapping[str, Any], title: str) -> None:
        if stages:
            self.made.note(stages, self.left)
            run_stages(Graph(stages=list(stages.values()), folder=self.run), self.run, self.engine, title=title)

    def _measure(self) -> dict[tuple[str, str], MeasureSuiteCheckpoint]:
        """Each checkpoint's stage but for suspects, done; those of equal weights share one."""
        places: dict[tuple[str, str], MeasureSuiteCheckpoint] = {}
        with ExitStack() as held:
            references = 0
            for one in self.series:
                self.left[one.name] = self._to_measure(one)
                references += held.enter_context(self.made.references_held(self.left[one.name]))
            ahead = Ahead(self.asked.keep_downloads)
            held.callback(ahead.close)
            by_key: dict[str, MeasureSuiteCheckpoint] = {}
            for one in self.series:
                left = self.left[one.name]
                for at, checkpoint in enumerate(left):
                    stage = self.made.measure(one, left, at, ahead)
                    places[one.name, checkpoint.name] = by_key.setdefault(stage.key, stage)
            by_key = self._share(by_key)
            if not references:  # two revisions are held at most
                ahead.expect([stage.weighing.checkpoint.place for stage in by_key.values() if not stage.is_done()])
            self._run(by_key, "Over training")
        return places

    def _share(self, stages: dict[str, MeasureSuiteCheckpoint]) -> dict[str, MeasureSuiteCheckpoint]:
        """Those of the shard; in the order of checkpoints."""
        if self.shard is None:
            return stages
        keys = list(stages)
        return {keys[at]: stages[keys[at]] for at in of_shard(len(keys), self.shard)}

    def _to_measure(self, series: CheckpointSeries) -> list[SuiteCheckpoint]:
        left_out = self._left_out(series, self.checks(series)) if self._weighed(series) else set()
        left = [checkpoint for checkpoint in series.checkpoints if checkpoint.name not in left_out]
        if len(left) >= 2:
            return left
        suspects = ", ".join(sorted(left_out))
        raise UserError(
            f"Checks leave fewer than two checkpoints of {series.name}; suspects are {suspects}.\n"
            "See what is wrong: infoflow over-training ... --check. To measure them all the same: --include-suspect"
        )

    # -- checks -------------------------------------------------------------------------------------------------------

    def _weighed(self, series: CheckpointSeries) -> bool:
        return all(self.weighing[series.name, one.name].is_done() for one in series.checkpoints)

    def checks(self, series: CheckpointSeries) -> SeriesChecks:
        return checked(series, {one.name: self.weighing[series.name, one.name] for one in series.checkpoints})

    def _left_out(self, series: CheckpointSeries, checks: SeriesChecks) -> set[str]:
        """Names of suspects, or, where these are wanted, of those that cannot be loaded."""
        if not self.asked.include_suspect:
            return set(checks.suspects)
        return {one.name for one in series.checkpoints if not self.weighing[series.name, one.name].facts["task"]}

    # -- tables -------------------------------------------------------------------------------------------------------

    def _write(self, stages: Mapping[tuple[str, str], MeasureSuiteCheckpoint], clock: WallClock) -> None:
        schemas: dict[str, TableSchema] = dict(CHECKPOINT_TABLES)
        for stage in stages.values():
            schemas |= stage.schemas()
        parts: list[Part] = []
        warnings: list[str] = []
        for one in self.series:
            checks = self.checks(one)
            left_out = self._left_out(one, checks)
            weighing = {each.name: self.weighing[one.name, each.name] for each in one.checkpoints}
            measured = [MeasuredCheckpoint(checkpoint=each, weighing=weighing[each.name]) for each in one.checkpoints]
            parts.append(series_rows(one, measured, checks, left_out))
            times = clocks(one, checks)
            parts += [
                stages[one.name, each.checkpoint.name].rows(
                    subject_of(one, measured, each), times[each.checkpoint.name]
                )
                for each in measured
                if each.checkpoint.name not in left_out and (one.name, each.checkpoint.name) in stages
            ]
            warnings += _told(one, checks, left_out)
        tables = stacked(parts)
        courses = stacked(self._courses(tables))
        tables = {name: frame for name, frame in tables.items() if name != f"{CONVERGENCE.name}{SUFFIX}"}
        self._write_tables(tables | courses, schemas | {schema.name: schema for schema in COURSE_TABLES})
        self._describe(stages, clock, warnings)
        write_report(self.run)

    def _courses(self, tables: Part) -> Iterator[Part]:
        """What the checkpoints of each series together say: roles, phases."""
        measured = measured_over_training(tables)
        for one in self.series:
            own = {name: frame[frame["model"] == one.name] for name, frame in measured.items()}
            yield course_tables(own)

    def _write_tables(self, tables: Mapping[str, pd.DataFrame], schemas: Mapping[str, TableSchema]) -> None:
        if not self.asked.check:
            self.run.tables.clear()
        for name, frame in tables.items():
            self.run.tables.write(frame, schemas[name])

    def _describe(
        self, stages: Mapping[tuple[str, str], MeasureSuiteCheckpoint], clock: WallClock, warnings: Sequence[str]
    ) -> None:
        measuring = {stage.key: stage for stage in stages.values()}
        all_stages = [*{stage.key: stage for stage in self.weighing.values()}.values(), *measuring.values()]
        models = []
        for one in self.series:
            measured = [
                MeasuredCheckpoint(checkpoint=each, weighing=self.weighing[one.name, each.name])
                for each in one.checkpoints
            ]
            last = measured[-1]
            keys = subject_of(one, measured, last).keys()
            facts = last.weighing.facts
            models.append({"name": keys.pop("model"), **keys, "parameters": facts["parameters"]})
        corpus = self.corpus
        self.run.update(
            corpus={
                "name": corpus.name,
                "digest": corpus.digest,
                "sentences": len(corpus),
                "words": int(corpus.word_counts.sum()),
            },
            models=models,
            timings={"over training (this call)": round(clock.this_call, 1)},
            stages=Graph(stages=all_stages, folder=self.run).records(),
            seconds=round(clock.all_calls, 1),
            warnings=list(warnings),
            failures=[dataclasses.asdict(failure) for stage in measuring.values() for failure in stage.failures()],
            command=provenance()["command"],
            provenance=provenance(),
        )


def _told(series: CheckpointSeries, checks: SeriesChecks, left_out: set[str]) -> list[str]:
    """Errors and warnings of the checks, for people; a suspect is told of by its name."""
    told, warned = [], set()
    for row in checks.rows:
        if row.level == "note":
            continue
        left = row.level == "error" and row.name in left_out
        told.append(f"{series.name}: {row.message.rstrip('.')} ({row.check}).{' Left out.' if left else ''}")
        if left and row.name not in warned:
            current_display().warn(told[-1])
            warned.add(row.name)
    return told
