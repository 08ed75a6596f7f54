"""`analyze` and `merge`: the measuring part of a study, for any Hugging Face models."""

import dataclasses
import json
import shutil
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

from infoflow.corpus import Corpus, load_corpus, parse_corpus
from infoflow.engine import InTurn
from infoflow.findings import FINDINGS_TABLE
from infoflow.flow import (
    AbstractMeasure,
    PassOptions,
    first_then_others,
    given_measures,
    is_first,
    load_measures,
    wait_for_all,
)
from infoflow.foundation import UserError, absolute, atomic_folder, digest, provenance, without_folders
from infoflow.report import anonymize, check_replaceable, known_tables, write_report
from infoflow.results import RunFolder

from ._clock import WallClock, reset_clock, wall_clock
from ._data import at_most, distinct
from ._given import AnalyzeOptions, changed, exists, given_models
from ._given_scores import GIVEN_SCORES
from ._graph import Graph
from ._measures import named_measures, standard_measures
from ._plan_sections import AnalysisPlan
from ._probing import probed_corpus, probing_measures
from ._run import Run
from ._run_stages import run_stages
from ._scores import TASK_SCORES
from ._settings import build_settings
from ._study import only_one, removed_if_refused
from ._workbench import Workbench
from .stages import AbstractStage, Check, Compare, MeasureGiven
from .stages._measure_given import SHARDS, shards_in
from .stages._pairs import described

OwnMeasures = Path | str | AbstractMeasure | Sequence[AbstractMeasure]
_FILES = ("corpus", "test", "labels", "own")  # options that may be paths


def analyze(
    sources: Sequence[Path | str] | Path | str,
    options: AnalyzeOptions | None = None,
    out: Path | str = "runs/analyze",
    shard: tuple[int, int] | None = None,
    measures: OwnMeasures | AnalysisPlan | None = None,
    **changes: Any,
) -> Run:
    """Measure models on a corpus, compare them where there are several, and write a run folder with its report.

    Each model is measured beside an untrained control of its own configuration, on the corpus's distinct sentences. A
    model that is measured already in `out` with the same settings is not measured again; a plan with another corpus or
    other settings replaces the folder's tables.

    Args:
        sources: What `load_model` takes: names, folders, .gguf files; one, or several in a list.
        options: Corpus, measures and settings.
        out: The run folder.
        shard: (i, n): run only every n-th batch and leave its sums in `out`, for `merge`.
        measures: Measures of your own, taken beside those of `only` and drawn in the report: a Python file, **which is
            run**, or objects, which are measured anew in each call. An `AnalysisPlan` sets the package's measures.
        changes: Fields of `AnalyzeOptions` by name, such as `corpus="own.txt"` or `only=["head_confidence"]`.

    Raises:
        UserError: A model, the corpus or a setting does not allow it.
    """
    options = changed(options or AnalyzeOptions(), _with_measures(changes, measures))
    sources = [sources] if isinstance(sources, str | Path) else list(sources)
    sources, options = _absolute(sources, options)
    own = _own(options, measures, shard)
    run = RunFolder(out)
    with removed_if_refused(run) if shard else only_one(run):  # shards may share a folder: each writes one of its own
        _open(run, sources, options)
        with wall_clock(run, save=shard is None and is_first()) as clock:
            _analyze(run, sources, options, own, shard, clock)
        if shard and not run.read():  # another shard, which was refused, had made the folder
            _open(run, sources, options)
        if options.anonymous and shard is None and is_first():
            anonymize(run)
    return Run(run)


def _with_measures(changes: dict[str, Any], measures: OwnMeasures | AnalysisPlan | None) -> dict[str, Any]:
    if isinstance(measures, AnalysisPlan):
        return {**changes, "measures": measures}
    return {**changes, "own": measures} if isinstance(measures, str | Path) else changes


def _own(
    options: AnalyzeOptions, measures: OwnMeasures | AnalysisPlan | None = None, shard: tuple[int, int] | None = None
) -> list[AbstractMeasure]:
    """The user's measures, refused before any work where they cannot be used."""
    taken = [*known_tables(), TASK_SCORES.name, GIVEN_SCORES.name, FINDINGS_TABLE.name]
    if measures is None or isinstance(measures, str | Path | AnalysisPlan):
        return load_measures(options.own, taken) if options.own else []
    if shard:
        raise UserError("Shards need measures that other processes can read. Got objects. Name a Python file instead.")
    return given_measures(measures, taken)


def _analyze(
    run: RunFolder,
    sources: Sequence[str],
    options: AnalyzeOptions,
    own: Sequence[AbstractMeasure],
    shard: tuple[int, int] | None,
    clock: WallClock | None,
    merging: bool = False,
) -> None:
    corpus, bench = corpus_of(options), Workbench(run.path / "work")
    measuring = _measuring(sources, options, _asked_measures(options, own), corpus, bench, merging)
    if shard is not None:
        for stage in measuring:
            stage.run_shard(*shard)
        return
    stages = _analysis_graph(run, measuring)
    run_stages(stages, run, InTurn(), title="Analysis")
    if is_first():
        _describe(run, corpus, stages, clock)
        run.update(own=_own_tables(run, own))
        write_report(run)
    wait_for_all()
    bench.discard("samples")


def _own_tables(run: RunFolder, own: Sequence[AbstractMeasure]) -> list[str]:
    """The tables of the user's measures, with those that the same plan left there before."""
    before = run.read().get("own")
    names = [*(before if isinstance(before, list) else []), *(measure.name for measure in own)]
    return sorted({name for name in names if name in run.tables})


def _measuring(
    sources: Sequence[str],
    options: AnalyzeOptions,
    measures: Sequence[AbstractMeasure],
    corpus: Corpus,
    bench: Workbench,
    merging: bool,
) -> list[MeasureGiven]:
    """The trained models, then their controls. A model that cannot be read is told of before any is measured."""
    # Models compared may have different tokenizers: then words, not subwords, must be the same.
    passes = PassOptions(
        seed=options.seed,
        tokens_per_batch=options.measures.tokens_per_batch,
        max_length=options.max_length,
        white_space_words=len(sources) > 1,
    )
    stages = []
    for given in given_models(sources, options):
        stages.append(MeasureGiven.of(given, options, passes, corpus, measures, bench, merging))
        if len(sources) > 1 or not given.trained:  # in memory one at a time
            stages[-1].release()
    return stages


def _asked_measures(options: AnalyzeOptions, own: Sequence[AbstractMeasure]) -> list[AbstractMeasure]:
    """The standard measures and the probes, or those that write the tables of `only`; the user's own in any case."""
    probes = probing_measures(options.probing)
    if not options.only:
        taken = {measure.name for measure in probes}  # a table that a plan of probes asks for is written once
        return [*(each for each in standard_measures(options.measures) if each.name not in taken), *probes, *own]
    others = {measure.name for measure in (*probes, *own)}
    named = named_measures(options.measures, [name for name in options.only if name not in others], others=[*others])
    return [*named, *(measure for measure in probes if measure.name in options.only), *own]


def _analysis_graph(run: RunFolder, measuring: Sequence[MeasureGiven]) -> Graph:
    """Measuring, the comparisons of all trained models and of all controls, and the tables."""
    pairs = [(a, b) for a, b in combinations(measuring, 2) if a.subject.trained == b.subject.trained]
    parts = [(a, b, _pair_key(a, b)) for a, b in pairs if a.pair_measures]
    with_parts = {stage: stage.needed_for([part for a, b, part in parts if stage in (a, b)]) for stage in measuring}
    comparing = [
        Compare(first=first, second=second, part=part, needs=(first.key, second.key))
        for first, second, part in ((with_parts[a], with_parts[b], part) for a, b, part in parts)
    ]
    stages: list[AbstractStage] = [*with_parts.values(), *comparing]
    check = Check(folder=run, stages=stages, needs=tuple(stage.key for stage in stages), claims=False)
    return Graph(stages=[*stages, check], folder=run)


def _pair_key(first: MeasureGiven, second: MeasureGiven) -> str:
    return digest([first.samples_key(), second.samples_key(), described(first.pair_measures)])


def merge(folders: Sequence[Path | str], out: Path | str) -> Run:
    """The run that shards from `analyze(..., shard=(i, n))` make up, written to `out`.

    Raises:
        UserError: A folder holds no shard, or shards are missing or do not belong together.
    """
    runs = [RunFolder.existing(folder) for folder in folders]
    if len({run.path.resolve() for run in runs}) < len(runs):
        raise UserError(f"Each shard must be given once. Got {', '.join(str(run.path) for run in runs)}.")
    plans = []
    for run in runs:
        manifest = run.read()
        if manifest.get("kind") != "analyze" or "plan" not in manifest:
            raise UserError(f"{run.path} was not written by `infoflow analyze --shard`.")
        plans.append(manifest["plan"])
    if any(plan != plans[0] for plan in plans):
        raise UserError("These folders hold shards of different analyses. Merge the folders of one command.")
    merged = RunFolder(out)
    sources, options = _asked(plans[0], runs[0])
    own = _own(options)
    with only_one(merged):
        _open(merged, sources, options)
        for shard in (shard for run in runs for shard in shards_in(run.path / "work" / SHARDS)):
            target = merged.path / "work" / SHARDS / shard.parent.name / shard.name
            if not target.exists():
                with atomic_folder(target) as folder:
                    shutil.copytree(shard, folder, dirs_exist_ok=True)
        _analyze(merged, sources, options, own, None, None, merging=True)  # no one clock saw the shards
        if options.anonymous and is_first():
            anonymize(merged)
    return Run(merged)


def _absolute(sources: Sequence[Path | str], options: AnalyzeOptions) -> tuple[list[str], AnalyzeOptions]:
    """Local paths made absolute, so that the stored plan means the same from any folder."""
    local = [str(absolute(source)) if exists(source) else str(source) for source in sources]
    files = {name: value for name in _FILES if (value := getattr(options, name)) and exists(value)}
    return local, dataclasses.replace(options, **{name: str(Path(value).resolve()) for name, value in files.items()})


def _asked(plan: Any, run: RunFolder) -> tuple[list[str], AnalyzeOptions]:
    """Models and options of a stored plan."""
    plan = plan if isinstance(plan, dict) else {}
    sources = plan.get("models")
    try:
        if not sources or not isinstance(sources, list) or not all(isinstance(source, str) for source in sources):
            raise UserError("It names no models.")
        return sources, build_settings(AnalyzeOptions, plan.get("options"))
    except UserError as error:
        raise UserError(
            f"{run.path / 'run.json'} is damaged: its plan cannot be read. {error}\n"
            "Run that shard again, with a new --out."
        ) from None


def _open(run: RunFolder, sources: Sequence[str], options: AnalyzeOptions) -> None:
    """Note the plan in the run folder; tables of another plan are removed, so that a report never mixes two."""
    before = run.read()
    if before and before.get("kind") != "analyze":
        raise UserError(f"{run.path} holds a run of another kind ({before.get('kind')}). Choose another --out.")
    if not sources:
        raise UserError("Give at least one model: a hub name, a folder, or a .gguf file.")
    plan = {"models": list(sources), "options": dataclasses.asdict(options)}
    names = ", ".join(given.name for given in given_models(sources, options) if given.trained)
    if is_first():
        check_replaceable(run.report)
        # Compared as JSON, which is what the folder holds.
        if before and _compared_plan(before.get("plan", {}), before) != _compared_plan(
            json.loads(json.dumps(plan)), before
        ):
            run.tables.clear()
            run.update(own=[])
            reset_clock(run)
        run.update(anonymous=False, kind="analyze", title=f"How information flows through {names}", plan=plan)
    wait_for_all()


def _compared_plan(plan: dict[str, Any], before: dict[str, Any]) -> dict[str, Any]:
    """What decides whether the folder's tables are of this plan; of an anonymous run no file's name is known."""
    plan = without_folders(plan, anonymous=True) if before.get("anonymous") else plan
    options = plan.get("options")
    left = {**options, "only": None, "anonymous": None} if isinstance(options, dict) else options
    if before.get("anonymous") and isinstance(left, dict):
        left = {**left, **dict.fromkeys(_FILES)}
    return {**plan, "options": left}


def corpus_of(options: AnalyzeOptions) -> Corpus:
    """The distinct sentences that an analysis reads."""
    if options.probing.on:
        corpus = first_then_others(lambda: probed_corpus(options))
        return first_then_others(lambda: parse_corpus(corpus, options.parser)) if options.parser else corpus
    columns = {"text_column": options.text_column, "translation_column": options.translation_column}
    whole = first_then_others(lambda: load_corpus(options.corpus, **columns))
    corpus = at_most(distinct(whole), options.sentences)
    return first_then_others(lambda: parse_corpus(corpus, options.parser)) if options.parser else corpus


def _describe(run: RunFolder, corpus: Corpus, stages: Graph, clock: WallClock | None) -> None:
    measured: list[MeasureGiven] = stages.of(MeasureGiven)
    models = [_told(each) for each in measured if each.subject.trained]
    words = int(corpus.word_counts.sum())
    run.update(
        corpus={"name": corpus.name, "digest": corpus.digest, "sentences": len(corpus), "words": words},
        models=models,
        timings={} if clock is None else {"analysis (this call)": round(clock.this_call, 1)},
        stages=stages.records(),
        seconds=None if clock is None else round(clock.all_calls, 1),
        warnings=[],
        failures=[dataclasses.asdict(failure) for each in measured for failure in each.failures()],
        command=provenance()["command"],
        provenance=provenance(),
    )


def _told(stage: MeasureGiven) -> dict[str, Any]:
    keys = stage.subject.keys()
    return {"name": keys.pop("model"), **keys, "parameters": stage.parameters}
