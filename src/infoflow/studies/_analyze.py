"""`analyze` and `compare_models`: the measuring part of a study, for any Hugging Face models."""

import copy
import dataclasses
import json
import shutil
import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from pathlib import Path
from typing import Any

import torch

from infoflow.corpus import Corpus, load_corpus, parse_corpus
from infoflow.flow import (
    AbstractMeasure,
    Measured,
    PairMeasure,
    PassOptions,
    agree,
    collect,
    describe_measure,
    first_then_others,
    is_first,
    job_key,
    measure_shard,
    merge_shards,
    wait_for_all,
)
from infoflow.foundation import UserError, atomic_folder, digest, hash64, provenance
from infoflow.models import Model, kept_heads, load_model
from infoflow.pruning import prune
from infoflow.report import write_report
from infoflow.results import RunFolder

from ._compare import PAIR_KEYS, Compared, compare_pairs
from ._data import at_most, distinct
from ._jobs import clean_samples
from ._measures import choose, measures_by_table, pair_measures, standard_measures
from ._plan import AnalysisPlan
from ._run import Run
from ._study import MODEL_KEYS, only_one
from ._workbench import Part, Schemas, Workbench, stacked

_SHARDS = "shards"
_DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


@dataclass(frozen=True, kw_only=True, slots=True)
class AnalyzeOptions:
    """What `analyze` reads and how; plain values, kept in run.json so that shards can be merged later."""

    corpus: str = "tatoeba-en-fr"
    parser: str = ""  # spaCy pipeline that gives the sentences trees; empty: the corpus's own, where it has any
    only: tuple[str, ...] = ()  # tables to compute; empty: all
    sentences: int = 5000  # of the corpus at most, chosen by hash; 0: all
    control: bool = True  # measure the same architecture with random weights too
    seed: int = 0
    device: str = "auto"
    tokenizer: str | None = None
    max_length: int = 512
    precision: str = "fp32"  # of weights and states; "bf16" is faster on processors that have it
    measures: AnalysisPlan = dataclasses.field(default_factory=AnalysisPlan)

    def __post_init__(self) -> None:
        if self.precision not in _DTYPES:
            raise UserError(f"precision must be one of {', '.join(_DTYPES)}. Got {self.precision}.")


def analyze(
    sources: Sequence[str],
    options: AnalyzeOptions | None = None,
    out: Path | str = "runs/analyze",
    shard: tuple[int, int] | None = None,
) -> Run:
    """Measure models on a corpus, compare them where there are several, and write a run folder with its report.

    Each model is measured beside an untrained control of its own configuration, on the corpus's distinct sentences. A
    model that is measured already in `out` with the same settings is not measured again; a plan with another corpus or
    other settings replaces the folder's tables.

    Args:
        sources: What `load_model` takes: names, folders, .gguf files.
        options: Corpus, measures and settings.
        out: The run folder.
        shard: (i, n): run only every n-th batch and leave its sums in `out`, for `merge`.

    Raises:
        UserError: A model, the corpus or a setting does not allow it.
    """
    options = options or AnalyzeOptions()
    sources, options = _absolute(sources, options)
    run = RunFolder(out)
    with nullcontext() if shard else only_one(run):  # shards may share a folder: each writes one of its own
        _open(run, sources, options)
        _analyze(run, sources, options, shard)
    return Run(run)


def _analyze(
    run: RunFolder,
    sources: Sequence[str],
    options: AnalyzeOptions,
    shard: tuple[int, int] | None,
    merging: bool = False,
) -> None:
    started = time.monotonic()
    measures = choose(standard_measures(options.measures), options.only)
    corpus = _corpus(options)
    bench = Workbench(run.path / "work")
    # Models compared may have different tokenizers: then words, not subwords, must be the same.
    passes = PassOptions(
        seed=options.seed,
        tokens_per_batch=options.measures.tokens_per_batch,
        max_length=options.max_length,
        white_space_words=len(sources) > 1,
    )
    analysed = []
    variants = _variants(sources, options)
    for variant in variants if len(sources) > 1 else ():
        if variant.trained:  # one that cannot be read is to be told of before any is measured
            _Analysis(variant, options, passes, corpus, measures, bench)
    for variant in variants:
        analysis = _Analysis(variant, options, passes, corpus, measures, bench)
        if shard is not None:
            analysis.run_shard(*shard)
        elif merging:
            analysis.merge()
        else:
            analysis.tables()
        analysis.release()
        analysed.append(analysis)
    if shard is not None:
        return
    pairs = {} if options.only else _compared(bench, analysed, options)
    if is_first():
        _write(run, analysed, pairs)
        _describe(run, corpus, analysed, seconds=time.monotonic() - started)
        write_report(run)
    wait_for_all()
    bench.discard("samples")


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
    sources, options = plans[0]["models"], _options(plans[0]["options"])
    with only_one(merged):
        _open(merged, sources, options)
        for shard in (shard for run in runs for shard in _shards(run.path / "work" / _SHARDS)):
            target = merged.path / "work" / _SHARDS / shard.parent.name / shard.name
            if not target.exists():
                with atomic_folder(target) as folder:
                    shutil.copytree(shard, folder, dirs_exist_ok=True)
        _analyze(merged, sources, options, shard=None, merging=True)
    return Run(merged)


def _shards(folder: Path) -> list[Path]:
    """Finished shards under `folder`; a killed one leaves a hidden folder."""
    return sorted(path for path in folder.rglob("*-of-*") if path.is_dir() and path.name[0].isdigit())


def _absolute(sources: Sequence[str], options: AnalyzeOptions) -> tuple[list[str], AnalyzeOptions]:
    """Local paths made absolute, so that the stored plan means the same from any folder."""
    local = [str(Path(source).resolve()) if Path(source).exists() else str(source) for source in sources]
    if Path(options.corpus).exists():
        options = dataclasses.replace(options, corpus=str(Path(options.corpus).resolve()))
    return local, options


def _options(values: dict[str, Any]) -> AnalyzeOptions:
    measures = {**values["measures"], "tables": tuple(values["measures"].get("tables", ()))}
    return AnalyzeOptions(**{**values, "only": tuple(values["only"]), "measures": AnalysisPlan(**measures)})


def _open(run: RunFolder, sources: Sequence[str], options: AnalyzeOptions) -> None:
    """Note the plan in the run folder; tables of another plan are removed, so that a report never mixes two."""
    before = run.read()
    if before and before.get("kind") != "analyze":
        raise UserError(f"{run.path} holds a run of another kind ({before.get('kind')}). Choose another --out.")
    if not sources:
        raise UserError("Give at least one model: a hub name, a folder, or a .gguf file.")
    plan = {"models": list(sources), "options": dataclasses.asdict(options)}
    names = ", ".join(distinct_names(sources))
    if is_first():
        # Compared as JSON, which is what the folder holds.
        if before and _without_only(before["plan"]) != _without_only(json.loads(json.dumps(plan))):
            run.tables.clear()
        run.update(kind="analyze", title=f"How information flows through {names}", plan=plan)
    wait_for_all()


def _without_only(plan: dict[str, Any]) -> dict[str, Any]:
    return {**plan, "options": {**plan["options"], "only": None}}


def _corpus(options: AnalyzeOptions) -> Corpus:
    corpus = at_most(distinct(first_then_others(lambda: load_corpus(options.corpus))), options.sentences)
    return first_then_others(lambda: parse_corpus(corpus, options.parser)) if options.parser else corpus


@dataclass(frozen=True, kw_only=True, slots=True)
class _Variant:
    source: str
    name: str
    trained: bool


def _variants(sources: Sequence[str], options: AnalyzeOptions) -> list[_Variant]:
    kinds = (True, False) if options.control else (True,)
    names = distinct_names(sources)
    return [
        _Variant(source=str(source), name=name, trained=trained)
        for trained in kinds
        for source, name in zip(sources, names, strict=True)
    ]


def distinct_names(sources: Sequence[str]) -> list[str]:
    """The last part of each path, or as many parts as tell the models apart."""
    parts = [Path(str(source)).resolve().parts if Path(source).exists() else Path(source).parts for source in sources]
    for depth in range(1, max(map(len, parts)) + 1):
        names = ["/".join(part[-depth:]) for part in parts]
        if len(set(names)) == len(names):
            return names
    raise UserError(f"Each model must be given once. Got {', '.join(map(str, sources))}.")


class _Analysis:
    """One model, trained or as initialised, on the corpus; the model itself is held only while it is needed."""

    def __init__(
        self,
        variant: _Variant,
        options: AnalyzeOptions,
        passes: PassOptions,
        corpus: Corpus,
        measures: list[AbstractMeasure],
        bench: Workbench,
    ) -> None:
        self.variant, self.corpus, self.measures, self.bench = variant, corpus, measures, bench
        self._sources, self.options, self.plan = options, passes, options.measures
        model = self.model
        self.key = job_key(model, corpus, self.measures, self.options)
        by_table = measures_by_table(self.measures)
        self._table_keys = {name: job_key(model, corpus, writing, passes) for name, writing in by_table.items()}
        self.parameters = sum(parameter.numel() for parameter in model.module.parameters())
        self.keys = {"model": model.name, "objective": model.task, "seed": 0, "trained": variant.trained}

    @cached_property
    def model(self) -> Model:
        sources = self._sources
        model = load_model(
            self.variant.source,
            tokenizer=sources.tokenizer,
            device=sources.device,
            dtype=_DTYPES[sources.precision],
        )
        model = model if self.variant.trained else untrained(model, sources.seed)
        return dataclasses.replace(model, name=self.variant.name)

    def release(self) -> None:
        """Let go of the model; it is loaded again when it is needed."""
        self.__dict__.pop("model", None)

    def tables(self) -> Part:
        """The model's tables; those that are not there are computed."""
        return self.bench.each_table("measured", self._table_keys, self._schemas(), self._compute)

    def merge(self) -> Part:
        """The model's tables from its shards.

        Raises:
            UserError: There are none for this model, corpus and settings, or not all.
        """
        shards = _shards(self.bench.path(_SHARDS, self.key))
        if not shards:
            raise UserError(
                f"No shard belongs to {self.variant.name} with this corpus and these settings. A model or the corpus "
                "has changed since, or infoflow has: run the shards again."
            )
        folder = self._fresh_samples()
        merged = merge_shards(self.model, self.corpus, self.measures, shards, folder, self.options)
        return self.bench.each_table("measured", self._table_keys, self._schemas(), lambda _: merged.tables)

    def stored(self) -> Part:
        """The tables, which are there."""
        return self.bench.read_each("measured", self._table_keys)

    def _schemas(self) -> Schemas:
        return {measure.name: measure.table for measure in self.measures}

    def _compute(self, names: list[str]) -> Part:
        measures = [measure for measure in self.measures if measure.name in names]
        for_pairs = [] if self._sources.only else pair_measures(self.plan)
        return self._measure([*measures, *for_pairs]).tables

    def _measure(self, measures: Sequence[AbstractMeasure]) -> Measured:
        return collect(self.model, self.corpus, measures, self._fresh_samples(), self.options)

    def _fresh_samples(self) -> Path:
        folder = self.bench.path("samples", self.key)
        if is_first():
            shutil.rmtree(folder, ignore_errors=True)
        wait_for_all()
        return folder

    def run_shard(self, index: int, num: int) -> None:
        out = self.bench.path(_SHARDS, self.key) / f"{index}-of-{num}"
        if not out.exists():
            measure_shard(self.model, self.corpus, self.measures, index, num, out, self.options)

    def compared(self) -> Compared:
        """The model for comparisons, its samples kept from measuring or drawn again."""
        folder = self.bench.path("samples", self.key)
        if not agree(any(folder.rglob("facts.json"))):
            self._measure(pair_measures(self.plan))
            self.release()
        keys = {name: value for name, value in self.keys.items() if name != "trained"}
        return Compared(keys=keys, trained=self.variant.trained, samples=clean_samples(folder))


def untrained(model: Model, seed: int) -> Model:
    """The same architecture with random weights: what a measure finds before any learning."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(hash64("untrained", seed))
        module = type(model.module)(copy.deepcopy(model.module.config)).to(model.module.dtype)
    fresh = load_model(module, tokenizer=model.tokenizer, device=model.device)
    if (kept := kept_heads(model.module)) is not None:
        gone = [
            (a.stack, a.kind, a.layer, head)
            for a in fresh.anatomy.attentions()
            for head in range(a.num_heads)
            if head not in kept[a.stack, a.kind, a.layer]
        ]
        fresh = prune(fresh, gone)
    return dataclasses.replace(fresh, target_tokenizer=model.target_tokenizer)


def _write(run: RunFolder, analysed: list[_Analysis], pairs: Part) -> None:
    measured = stacked({name: frame.assign(**each.keys) for name, frame in each.stored().items()} for each in analysed)
    schemas = {measure.name: measure.table.with_keys(*MODEL_KEYS) for measure in analysed[0].measures}
    for name, frame in measured.items():
        run.tables.write(frame, schemas[name])
    for measure in pair_measures(analysed[0].plan):
        if measure.name in pairs:
            run.tables.write(pairs[measure.name], measure.table.with_keys(*PAIR_KEYS))


def _compared(bench: Workbench, analysed: list[_Analysis], options: AnalyzeOptions) -> Part:
    """Tables of all pairs of models, and of their controls; computed unless they are there."""
    measures = pair_measures(options.measures)
    pairs = [(a, b) for a, b in combinations(analysed, 2) if a.variant.trained == b.variant.trained]
    if not pairs:
        return {}
    key = digest(
        [[analysis.key, analysis.variant.name] for analysis in analysed] + [describe_measure(m) for m in measures]
    )
    schemas = {measure.name: measure.table.with_keys(*PAIR_KEYS) for measure in measures}
    return bench.tables("compared", key, schemas, lambda: _compare_pairs(pairs, measures))


def _compare_pairs(pairs: list[tuple[_Analysis, _Analysis]], measures: Sequence[PairMeasure]) -> Part:
    # By object: two models of one shape have the same control, so the same key.
    models = {id(analysis): analysis.compared() for pair in pairs for analysis in pair}
    return compare_pairs([(models[id(a)], models[id(b)]) for a, b in pairs], measures)


def _describe(run: RunFolder, corpus: Corpus, analysed: list[_Analysis], seconds: float) -> None:
    models = [
        {"name": each.keys["model"], "objective": each.keys["objective"], "seed": 0, "parameters": each.parameters}
        for each in analysed
        if each.variant.trained
    ]
    words = int(corpus.word_counts.sum())
    run.update(
        corpus={"name": corpus.name, "digest": corpus.digest, "sentences": len(corpus), "words": words},
        models=models,
        timings={"analysis (this call)": round(seconds, 1)},
        seconds=round(seconds, 1),
        warnings=[],
        command=provenance()["command"],
        provenance=provenance(),
    )
