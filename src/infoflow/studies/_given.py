"""Models that are given to an analysis, and their controls: the same architecture with random weights."""

import copy
import dataclasses
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch

from infoflow.foundation import (
    CountOrNone,
    Device,
    MaxLength,
    Name,
    Seed,
    UserError,
    absolute,
    as_written,
    check_settings,
    did_you_mean,
    hash64,
)
from infoflow.models import Model, kept_heads, load_model
from infoflow.objectives import AbstractObjective, MaskedLM
from infoflow.pruning import prune
from infoflow.results import UNTRAINED, Recipe, Spec, Subject
from infoflow.training import trained_objective

from ._plan_sections import AnalysisPlan
from ._probing_plan import ProbingPlan

_TEXTS, _LISTS = ("corpus", "test", "labels", "own"), ("only", "tags")  # fields of `AnalyzeOptions`
_DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


@dataclass(frozen=True, kw_only=True, slots=True)
class AnalyzeOptions:
    """What `analyze` reads and how; plain values, kept in run.json so that shards can be merged later."""

    corpus: Name = "tatoeba-en-fr"
    text_column: str = ""  # of the sentences, in a table or dataset
    translation_column: str = ""
    label_column: str = ""  # of each sentence's class, for the task sentence-label
    bad_column: str = ""  # of the sentence that makes a minimal pair of each
    labels: str = ""  # a file with one class of a sentence a line, instead
    tags: tuple[str, ...] = ()  # names of the columns of a tagged file
    test: str = ""  # a corpus that probes are tested on; empty: a part of `corpus`
    parser: str = ""  # spaCy pipeline that gives the sentences trees; empty: the corpus's own, where it has any
    only: tuple[str, ...] = ()  # tables to compute; empty: all
    own: str = ""  # a Python file with measures of the user's own, taken beside those of `only`
    sentences: CountOrNone = 5000  # of the corpus at most, chosen by hash; 0: all
    control: bool = True  # measure the same architecture with random weights too
    seed: Seed = 0
    device: Device = "auto"
    tokenizer: str | None = None
    max_length: MaxLength = 512
    precision: Literal["fp32", "bf16"] = "fp32"  # of weights and states; "bf16" is faster on processors that have it
    anonymous: bool = False  # what is written holds no path and no name of a local file
    measures: AnalysisPlan = dataclasses.field(default_factory=AnalysisPlan)
    probing: ProbingPlan = dataclasses.field(default_factory=ProbingPlan)  # its tables are beside those of `only`

    def __post_init__(self) -> None:
        check_settings(self)


def changed(options: AnalyzeOptions, changes: Mapping[str, Any]) -> AnalyzeOptions:
    """The options with fields of other values; lists become tuples, paths names.

    Raises:
        UserError: There is no such field, or its value is not allowed.
    """
    names = [field.name for field in dataclasses.fields(options)]
    for name, value in changes.items():
        if name not in names:
            raise UserError(
                f"There is no option {name[:80]}.{did_you_mean(name, names)} Known are: {', '.join(names)}."
            )
        if name in _TEXTS and not isinstance(value, str | Path):
            raise UserError(f"{name} must be a name or a path: a run says what it read. Got {as_written(value)}.")
    plain = {name: str(value) if isinstance(value, Path) else value for name, value in changes.items()}
    plain |= {name: (value,) for name, value in plain.items() if name in _LISTS and isinstance(value, str)}
    plain |= {name: tuple(value) for name, value in plain.items() if isinstance(value, list)}
    return dataclasses.replace(options, **plain)


@dataclass(frozen=True, kw_only=True, slots=True)
class GivenModel:
    """A model to measure: as it is, or with random weights."""

    source: str
    name: str
    trained: bool

    def load(self, options: AnalyzeOptions) -> Model:
        model = load_model(
            self.source, tokenizer=options.tokenizer, device=options.device, dtype=_DTYPES[options.precision]
        )
        model = model if self.trained else untrained(model, options.seed)
        return dataclasses.replace(model, name=self.name)

    def subject(self, model: Model) -> Subject:
        """What tables call it, once it is loaded."""
        return given_subject(model, self.name, trained=self.trained)

    @property
    def corruption(self) -> AbstractObjective | None:
        """How its training corrupted text, where its folder says so, and not as it is taken to be without a word."""
        objective = trained_objective(self.source)
        return None if objective == MaskedLM() else objective


def given_subject(model: Model, name: str = "", *, trained: bool = True) -> Subject:
    """What tables call a model that no study trained.

    Args:
        model: The model.
        name: What it is called instead of its own name.
        trained: False: it is the control, the same architecture with random weights, under the name of the model.
    """
    recipe = Recipe(objective=Spec(model.task), architecture=Spec(family_of(model)), seed=0)
    return Subject(recipe=recipe, update=None if trained else UNTRAINED, given=name or model.name)


def family_of(model: Model) -> str:
    """What transformers calls the architecture."""
    return str(getattr(model.module.config, "model_type", ""))


def given_models(sources: Sequence[str], options: AnalyzeOptions) -> list[GivenModel]:
    """The models, then their controls if these are wanted."""
    kinds = (True, False) if options.control else (True,)
    names = distinct_names(sources)
    if options.anonymous:
        numbers = iter(range(1, len(names) + 1))
        names = [
            f"model-{next(numbers)}" if exists(source) else name for name, source in zip(names, sources, strict=True)
        ]
    return [
        GivenModel(source=str(source), name=name, trained=trained)
        for trained in kinds
        for source, name in zip(sources, names, strict=True)
    ]


def distinct_names(sources: Sequence[str]) -> list[str]:
    """The last part of each path, or as many parts as tell the models apart; a link keeps its own name."""
    parts = [Path(absolute(source) if exists(source) else source).parts for source in sources]
    for depth in range(1, max(map(len, parts)) + 1):
        names = ["/".join(part[-depth:]) for part in parts]
        if len(set(names)) == len(names):
            return names
    raise UserError(f"Each model must be given once. Got {', '.join(map(str, sources))}.")


def exists(path: str | Path) -> bool:
    """Whether there is a file or folder of that name; a name that is too long has none."""
    return os.path.exists(path)  # noqa: PTH110 (that of pathlib raises before Python 3.12)


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
