"""`analyze` and `merge`: measure any Hugging Face models without training them."""

import dataclasses
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any

import pandas as pd

from infoflow._subjects import provided
from infoflow.corpus import Corpus, load_chat, load_corpus, parse_corpus, template_digest
from infoflow.engine import InTurn
from infoflow.flow import AbstractMeasure, first_then_others, given_measures, is_first, load_measures, wait_for_all
from infoflow.foundation import UserError, absolute, atomic_folder, current_display, digest, private_settings
from infoflow.models import Model, load_tokenizer_of
from infoflow.report import anonymize, check_output, write_report
from infoflow.results import GIVEN_SCORES, KEYS, RunFolder, Subject, TableSchema

from ._data import at_most, distinct
from ._external import AnalyzeOptions, changed, exists, external_models, external_subject, where_of
from ._graph import Graph, run_stages
from ._measures import named_measures, requested_measures, standard_measures
from ._plan import build_settings
from ._plan_sections import AnalysisPlan
from ._plugins import taken_tables
from ._result_cache import ResultCache
from ._run import Run, WallClock, reset_clock, wall_clock
from ._study import only_one, removed_if_refused
from .stages import AbstractStage, Check, Compare, MeasureExternal
from .stages._measure import SHARDS, described, shards_in

OwnMeasures = Path | str | AbstractMeasure | Sequence[AbstractMeasure]
_FILES = ("corpus", "test", "labels", "own")  # options that may hold a path


def analyze(
    sources: Sequence[Path | str] | Path | str,
    options: AnalyzeOptions | None = None,
    out: Path | str = "runs/analyze",
    shard: tuple[int, int] | None = None,
    measures: OwnMeasures | AnalysisPlan | None = None,
    **changes: Any,
) -> Run:
    """Measure models on a corpus, compare them if there are several, and write a run folder with a report.

    Each model is measured on the distinct sentences of the corpus, with an untrained control of the same configuration.
    A model that was already measured in `out` with the same settings is not measured again. Another corpus or other
    settings replace the folder's tables.

    Args:
        sources: A name, folder or .gguf file, as for `load_model`, or a list of several.
        options: Corpus, measures and settings.
        out: The run folder.
        shard: (i, n): run only every n-th batch and write its sums to `out`, for `merge`.
        measures: Your own measures, which are run in addition to those of `only` and drawn in the report. Give a Python
            file, **which is executed**, or objects, which are measured again in each call. An `AnalysisPlan` instead
            configures the package's measures.
        changes: Fields of `AnalyzeOptions` by name, such as `corpus="own.txt"` or `only=["head_confidence"]`.

    Raises:
        UserError: A model, the corpus or a setting is unsuitable.
    """
    options = changed(options or AnalyzeOptions(), _with_measures(changes, measures))
    sources = [sources] if isinstance(sources, str | Path) else list(sources)
    sources, options = _absolute(sources, options)
    own = _own(options, measures, shard)
    run = RunFolder(out)
    with removed_if_refused(run) if shard else only_one(run):  # each shard writes its own files
        _open(run, sources, options, [measure.name for measure in own])
        with wall_clock(run, save=shard is None and is_first()) as clock:
            _analyze(run, sources, options, own, shard, clock)
        if shard and not run.read():  # another shard created the folder and was refused
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
    """The user's measures; unusable ones are refused before any work starts."""
    if measures is None or isinstance(measures, str | Path | AnalysisPlan):
        return load_measures(options.own, taken_tables()) if options.own else []
    if shard:
        raise UserError("Shards need measures that other processes can load. Got objects. Name a Python file instead.")
    return given_measures(measures, taken_tables())


def _analyze(
    run: RunFolder,
    sources: Sequence[str],
    options: AnalyzeOptions,
    own: Sequence[AbstractMeasure],
    shard: tuple[int, int] | None,
    clock: WallClock | None,
    merging: bool = False,
) -> None:
    corpus, bench = corpus_of(options, sources), ResultCache(run.path / "work")
    measuring = _measuring(sources, options, chosen_measures(options, own), corpus, bench, merging)
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
    """The tables of the user's measures, including those that the same plan already wrote to the run folder."""
    before = run.read().get("own")
    names = [*(before if isinstance(before, list) else []), *(measure.name for measure in own)]
    return sorted({name for name in names if name in run.tables})


def _measuring(
    sources: Sequence[str],
    options: AnalyzeOptions,
    measures: Sequence[AbstractMeasure],
    corpus: Corpus,
    bench: ResultCache,
    merging: bool,
) -> list[MeasureExternal]:
    """The trained models, then their controls; an unreadable model is reported before any model is measured."""
    # Compared models may have different tokenizers, so their words must match, but their subwords need not.
    passes = options.measures.passes(
        seed=options.seed, max_length=options.max_length, white_space_words=len(sources) > 1, where=where_of(options)
    )
    stages = []
    for external in external_models(sources, options):
        stages.append(MeasureExternal.of(external, options, passes, corpus, measures, bench, merging))
        if len(sources) > 1 or not external.trained:  # one model in memory at a time
            stages[-1].release()
    return stages


def chosen_measures(options: AnalyzeOptions, own: Sequence[AbstractMeasure]) -> list[AbstractMeasure]:
    """The standard and requested measures, or those that write the tables of `only`; the user's own are added."""
    if options.where:
        return _by_token(chosen_measures(dataclasses.replace(options, where=""), own))
    requested = requested_measures(options)
    if not options.only:
        taken = {measure.name for measure in requested}  # a table that a section requests is written once
        return [*(each for each in standard_measures(options.measures) if each.name not in taken), *requested, *own]
    others = {GIVEN_SCORES.name, *(measure.name for measure in (*requested, *own))}
    named = named_measures(options.measures, [name for name in options.only if name not in others], others=[*others])
    return [*named, *(measure for measure in requested if measure.name in options.only), *own]


def _by_token(measures: Sequence[AbstractMeasure]) -> list[AbstractMeasure]:
    others = list(dict.fromkeys(measure.name for measure in measures if not measure.by_token))
    kept = [measure for measure in measures if measure.by_token]
    if not kept:
        raise UserError(
            f"--where applies to tables that count tokens one by one. Got {', '.join(others)}. Leave out --where, or "
            "these tables."
        )
    if others:
        current_display().note(f"--where leaves out tables that do not count tokens one by one: {', '.join(others)}.")
    return kept


def _analysis_graph(run: RunFolder, measuring: Sequence[MeasureExternal]) -> Graph:
    """The stages that measure, compare all trained models and all controls, and write the tables."""
    pairs = [(a, b) for a, b in combinations(measuring, 2) if a.subject.trained == b.subject.trained]
    pairs = [(a, b) for a, b in pairs if a.pair_measures]
    parts = [(a, b, digest([a.samples_key(), b.samples_key(), described(a.pair_measures)])) for a, b in pairs]
    with_parts = {stage: stage.needed_for([part for a, b, part in parts if stage in (a, b)]) for stage in measuring}
    comparing = [
        Compare(first=first, second=second, part=part, needs=(first.key, second.key))
        for first, second, part in ((with_parts[a], with_parts[b], part) for a, b, part in parts)
    ]
    stages: list[AbstractStage] = [*with_parts.values(), *comparing]
    check = Check(folder=run, stages=stages, needs=tuple(stage.key for stage in stages), claims=False)
    return Graph(stages=[*stages, check], folder=run)


def merge(folders: Sequence[Path | str], out: Path | str, measures: Path | str | None = None) -> Run:
    """Merge shards from `analyze(..., shard=(i, n))` into one run, written to `out`.

    Shards with the user's own measures need the Python file again, in `measures`. **It is executed**, so check it if
    the folders come from somebody else.

    Raises:
        UserError: A folder holds no shard, a shard is missing, the shards do not match, or `measures` is missing.
    """
    runs = [RunFolder.existing(folder) for folder in folders]
    if len({run.path.resolve() for run in runs}) < len(runs):
        raise UserError(f"Shards must be distinct. Got {', '.join(str(run.path) for run in runs)}.")
    plans = []
    for run in runs:
        manifest = run.read()
        if manifest.get("kind") != "analyze" or "plan" not in manifest:
            raise UserError(f"{run.path} was not written by `infoflow analyze --shard`.")
        plans.append(manifest["plan"])
    if any(plan != plans[0] for plan in plans):
        raise UserError("These folders hold shards of different analyses. Merge folders that one command wrote.")
    merged = RunFolder(out)
    sources, options = _requested(plans[0], runs[0])
    if options.own and measures is None:
        raise UserError(
            f"These shards use their author's own measures: {options.own}. That code is executed only if you name it.\n"
            "Look at it, and add --measures FILE."
        )
    if measures is not None:
        sources, options = _absolute(sources, dataclasses.replace(options, own=str(measures)))
    own = _own(options)
    with only_one(merged):
        _open(merged, sources, options)
        for shard in (shard for run in runs for shard in shards_in(run.path / "work" / SHARDS)):
            target = merged.path / "work" / SHARDS / shard.parent.name / shard.name
            if not target.exists():
                with atomic_folder(target) as folder:
                    shutil.copytree(shard, folder, dirs_exist_ok=True)
        _analyze(merged, sources, options, own, None, None, merging=True)  # no single clock has run over all shards
        if options.anonymous and is_first():
            anonymize(merged)
    return Run(merged)


def _absolute(sources: Sequence[Path | str], options: AnalyzeOptions) -> tuple[list[str], AnalyzeOptions]:
    """Make local paths absolute, so that the stored plan means the same in any folder."""
    local = [str(absolute(source)) if exists(source) else str(source) for source in sources]
    files = {name: value for name in _FILES if (value := getattr(options, name)) and exists(value)}
    return local, dataclasses.replace(options, **{name: str(Path(value).resolve()) for name, value in files.items()})


def _requested(plan: Any, run: RunFolder) -> tuple[list[str], AnalyzeOptions]:
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


def _open(run: RunFolder, sources: Sequence[str], options: AnalyzeOptions, own: Iterable[str] = ()) -> None:
    """Write the plan to the run folder and remove tables of another plan, so that a report never mixes two."""
    before = check_output(run, "analyze", tables=own)
    if not sources:
        raise UserError("At least one model is needed: a hub name, a folder, or a .gguf file.")
    plan: dict[str, Any] = {"models": list(sources), "options": dataclasses.asdict(options)}
    for name in ("names", "chat", "where", "lines"):
        if _is_default(options, name):
            del plan["options"][name]  # plans of versions without this entry
    names = ", ".join(one.name for one in external_models(sources, options) if one.trained)
    if is_first():
        tables_of = _tables_of(plan)
        if before and before.get("tables_of", _tables_of(before.get("plan"))) != tables_of:
            run.tables.clear()
            run.update(own=[])
            reset_clock(run)
        run.update(
            anonymous=False,
            kind="analyze",
            title=f"How information flows through {names}" + (f" ({options.where})" if options.where else ""),
            plan=plan,
            tables_of=tables_of,
            **private_settings(AnalyzeOptions, "options."),
        )
    wait_for_all()


def _tables_of(plan: Any) -> str:
    """Digest of everything that determines whether the folder's tables belong to this plan."""
    if not isinstance(plan, dict) or not isinstance(options := plan.get("options"), dict):
        return digest(plan)
    return digest({**plan, "options": {**options, "only": None, "anonymous": None}})


def corpus_of(options: AnalyzeOptions, sources: Sequence[str]) -> Corpus:
    """The distinct sentences that an analysis reads, or conversations formatted by its models' chat template."""
    chat = partial(_chats, options=options, sources=sources) if options.chat else None
    corpus = first_then_others(lambda: _read(options, chat))
    return first_then_others(lambda: parse_corpus(corpus, options.parser)) if options.parser else corpus


def _read(options: AnalyzeOptions, chat: Callable[[str], Corpus] | None) -> Corpus:
    for read in provided("stages", "requested_corpus"):
        if (corpus := read(options, chat)) is not None:
            return corpus
    how = {name: getattr(options, name) for name in ("text_column", "translation_column", "label_column", "lines")}
    return at_most(distinct(chat(options.corpus) if chat else load_corpus(options.corpus, **how)), options.sentences)


_NO_CHAT = ("text_column", "translation_column", "prefix", "labels", "label_column", "bad_column", "tags", "lines")


def _is_default(options: AnalyzeOptions, name: str) -> bool:
    return getattr(options, name) == getattr(AnalyzeOptions(), name)


def _chats(source: str, options: AnalyzeOptions, sources: Sequence[str]) -> Corpus:
    if given := [name.replace("_", "-") for name in _NO_CHAT if not _is_default(options, name)]:
        raise UserError(f"--chat reads whole conversations, so --{given[0]} does not apply. Leave one of them out.")
    tokenizers = [load_tokenizer_of(one, options.tokenizer) for one in sources]
    if len({template_digest(one) for one in tokenizers}) > 1:
        raise UserError(
            "Models can be compared on conversations only if they have the same chat template. Those of "
            f"{', '.join(sources)} differ. Measure them one by one, or name one tokenizer for all (--tokenizer)."
        )
    return load_chat(source, tokenizers[0], sources[0])


def described_corpus(corpus: Corpus) -> dict[str, Any]:
    words = int(corpus.word_counts.sum())
    return {"name": corpus.name, "digest": corpus.digest, "sentences": len(corpus), "words": words}


def described_model(subject: Subject, parameters: int) -> dict[str, Any]:
    keys = subject.keys()
    return {"name": keys.pop("model"), **keys, "parameters": parameters}


def write_model_run(
    run: RunFolder, model: Model, corpus: Corpus, tables: Mapping[TableSchema, pd.DataFrame], **facts: Any
) -> Path:
    """Write the tables, facts and report of one model that was not trained in a study."""
    subject = external_subject(model)
    for schema, frame in tables.items():
        run.tables.write(frame.assign(**subject.keys()), schema.with_keys(*KEYS))
    parameters = sum(one.numel() for one in model.module.parameters())
    models = [described_model(subject, parameters)]
    run.record(corpus=described_corpus(corpus), models=models, timings={}, **facts)
    return write_report(run)


def _describe(run: RunFolder, corpus: Corpus, stages: Graph, clock: WallClock | None) -> None:
    measured: list[MeasureExternal] = stages.of(MeasureExternal)
    models = [described_model(each.subject, each.parameters) for each in measured if each.subject.trained]
    run.record(
        corpus=described_corpus(corpus),
        models=models,
        timings={} if clock is None else {"analysis (this call)": round(clock.this_call, 1)},
        stages=stages.records(),
        seconds=None if clock is None else round(clock.all_calls, 1),
        failures=[dataclasses.asdict(failure) for each in measured for failure in each.failures()],
    )
