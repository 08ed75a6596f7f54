"""One model of an analysis: loaded when it is needed, measured beside its control, in shards or whole."""

import copy
import dataclasses
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal

import torch

from infoflow.corpus import Corpus
from infoflow.flow import (
    AbstractMeasure,
    Failure,
    Measured,
    PassOptions,
    agree,
    collect,
    is_first,
    job_key,
    measure_shard,
    merge_shards,
    wait_for_all,
)
from infoflow.foundation import CountOrNone, Device, MaxLength, Name, Seed, UserError, check_settings, hash64
from infoflow.models import Model, kept_heads, load_model
from infoflow.pruning import prune

from ._compare import Compared
from ._jobs import clean_samples
from ._measures import measures_by_table, pair_measures
from ._plan import AnalysisPlan
from ._workbench import Computed, Part, Schemas, Workbench

SHARDS = "shards"
_DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


@dataclass(frozen=True, kw_only=True, slots=True)
class AnalyzeOptions:
    """What `analyze` reads and how; plain values, kept in run.json so that shards can be merged later."""

    corpus: Name = "tatoeba-en-fr"
    text_column: str = ""  # of the sentences, in a table or dataset
    translation_column: str = ""
    parser: str = ""  # spaCy pipeline that gives the sentences trees; empty: the corpus's own, where it has any
    only: tuple[str, ...] = ()  # tables to compute; empty: all
    sentences: CountOrNone = 5000  # of the corpus at most, chosen by hash; 0: all
    control: bool = True  # measure the same architecture with random weights too
    seed: Seed = 0
    device: Device = "auto"
    tokenizer: str | None = None
    max_length: MaxLength = 512
    precision: Literal["fp32", "bf16"] = "fp32"  # of weights and states; "bf16" is faster on processors that have it
    anonymous: bool = False  # what is written holds no path and no name of a local file
    measures: AnalysisPlan = dataclasses.field(default_factory=AnalysisPlan)

    def __post_init__(self) -> None:
        check_settings(self)


@dataclass(frozen=True, kw_only=True, slots=True)
class Variant:
    """A model to measure: as it is, or with random weights."""

    source: str
    name: str
    trained: bool


def variants(sources: Sequence[str], options: AnalyzeOptions) -> list[Variant]:
    """The models, then their controls if these are wanted."""
    kinds = (True, False) if options.control else (True,)
    names = distinct_names(sources)
    if options.anonymous:
        numbers = iter(range(1, len(names) + 1))
        names = [
            f"model-{next(numbers)}" if exists(source) else name
            for name, source in zip(names, sources, strict=True)
        ]
    return [
        Variant(source=str(source), name=name, trained=trained)
        for trained in kinds
        for source, name in zip(sources, names, strict=True)
    ]


def distinct_names(sources: Sequence[str]) -> list[str]:
    """The last part of each path, or as many parts as tell the models apart."""
    parts = [Path(str(source)).resolve().parts if exists(source) else Path(source).parts for source in sources]
    for depth in range(1, max(map(len, parts)) + 1):
        names = ["/".join(part[-depth:]) for part in parts]
        if len(set(names)) == len(names):
            return names
    raise UserError(f"Each model must be given once. Got {', '.join(map(str, sources))}.")


def exists(path: str | Path) -> bool:
    """Whether there is a file or folder of that name; a name that is too long has none."""
    return os.path.exists(path)  # noqa: PTH110 (that of pathlib raises before Python 3.12)


class Analysis:
    """One model, trained or as initialised, on the corpus; the model itself is held only while it is needed."""

    def __init__(
        self,
        options: AnalyzeOptions,
        passes: PassOptions,
        corpus: Corpus,
        measures: list[AbstractMeasure],
        bench: Workbench,
        variant: Variant,
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
        shards = shards_in(self.bench.path(SHARDS, self.key))
        if not shards:
            raise UserError(
                f"No shard belongs to {self.variant.name} with this corpus and these settings. A model or the corpus "
                "has changed since, or infoflow has: run the shards again."
            )
        folder = self._fresh_samples()
        merged = merge_shards(self.model, self.corpus, self.measures, shards, folder, self.options)
        computed = Computed(tables=merged.tables, failures=merged.failures)
        return self.bench.each_table("measured", self._table_keys, self._schemas(), lambda _: computed)

    def stored(self) -> Part:
        """The tables, which are there."""
        return self.bench.read_each("measured", self._table_keys)

    def failures(self) -> list[Failure]:
        """Measures that failed on this model; their tables are not there."""
        return self.bench.failures("measured", self._table_keys)

    def _schemas(self) -> Schemas:
        return {measure.name: measure.table for measure in self.measures}

    def _compute(self, names: list[str]) -> Computed:
        measures = [measure for measure in self.measures if measure.name in names]
        for_pairs = [] if self._sources.only else pair_measures(self.plan)
        measured = self._measure([*measures, *for_pairs])
        return Computed(tables=measured.tables, failures=measured.failures)

    def _measure(self, measures: Sequence[AbstractMeasure]) -> Measured:
        # The error of the only measure that was asked for is the command's; of several, each keeps to itself.
        several = len(self.measures) > 1
        return collect(self.model, self.corpus, measures, self._fresh_samples(), self.options, keep_going=several)

    def _fresh_samples(self) -> Path:
        folder = self.bench.path("samples", self.key)
        if is_first():
            shutil.rmtree(folder, ignore_errors=True)
        wait_for_all()
        return folder

    def run_shard(self, index: int, num: int) -> None:
        out = self.bench.path(SHARDS, self.key) / f"{index}-of-{num}"
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


def shards_in(folder: Path) -> list[Path]:
    """Finished shards under `folder`; a killed one leaves a hidden folder."""
    return sorted(path for path in folder.rglob("*-of-*") if path.is_dir() and path.name[0].isdigit())


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
