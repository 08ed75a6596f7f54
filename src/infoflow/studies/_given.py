"""Pretrained or external models in an analysis, and their controls: the same architecture with random weights."""

import copy
import dataclasses
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch

from infoflow.foundation import (
    LATER,
    CountOrNone,
    Device,
    File,
    MaxLength,
    OwnWord,
    OwnWords,
    RequiredFile,
    Seed,
    UserError,
    absolute,
    as_written,
    check_settings,
    did_you_mean,
    hash64,
)
from infoflow.heads import prune
from infoflow.models import Model, kept_heads, load_model
from infoflow.objectives import AbstractObjective, MaskedLM
from infoflow.results import UNTRAINED, Recipe, Spec, Subject
from infoflow.training import trained_objective

from ._plan_sections import AnalysisPlan
from ._probing_plan import ProbingPlan

_TEXTS, _LISTS = ("corpus", "test", "labels", "own"), ("only", "tags")  # fields of `AnalyzeOptions`
_DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


@dataclass(frozen=True, kw_only=True, slots=True)
class AnalyzeOptions:
    """What `analyze` reads and how: plain values, kept in run.json so that shards can be merged later."""

    corpus: RequiredFile = "tatoeba-en-fr"
    text_column: OwnWord = ""  # column of the sentences, in a table or dataset
    translation_column: OwnWord = ""
    label_column: OwnWord = ""  # column of each sentence's class, for the task sentence-label
    bad_column: OwnWord = ""  # column of the contrasting sentence of each minimal pair
    labels: File = ""  # alternatively a file with one sentence class per line
    tags: OwnWords = ()  # column names of a tagged file
    test: File = ""  # test corpus for probes; empty: a part of `corpus`
    parser: File = ""  # spaCy pipeline that parses the sentences; empty: the corpus's own trees, if any
    only: tuple[str, ...] = ()  # tables to compute; empty: all
    own: File = ""  # a Python file with the user's own measures, run in addition to those of `only`
    sentences: CountOrNone = 5000  # maximum number, chosen by hash; 0: all
    control: bool = True  # also measure the same architecture with random weights
    seed: Seed = 0
    device: Device = "auto"
    tokenizer: File | None = None
    source_language: str = dataclasses.field(default="", metadata=LATER)  # code, for models of several languages
    target_language: str = dataclasses.field(default="", metadata=LATER)
    prefix: OwnWord = dataclasses.field(default="", metadata=LATER)  # prepended to each text
    max_length: MaxLength = 512
    precision: Literal["fp32", "bf16"] = "fp32"  # of weights and states; "bf16" is faster on processors that support it
    anonymous: bool = False  # omit all paths and names of local files from the output
    measures: AnalysisPlan = dataclasses.field(default_factory=AnalysisPlan)
    probing: ProbingPlan = dataclasses.field(default_factory=ProbingPlan)  # its tables are added to those of `only`

    def __post_init__(self) -> None:
        check_settings(self)


def changed(options: AnalyzeOptions, changes: Mapping[str, Any]) -> AnalyzeOptions:
    """The options with changed fields; lists become tuples, and paths become names.

    Raises:
        UserError: A field does not exist or its value is not allowed.
    """
    names = [field.name for field in dataclasses.fields(options)]
    for name, value in changes.items():
        if name not in names:
            raise UserError(
                f"There is no option {name[:80]}.{did_you_mean(name, names)} Known options: {', '.join(names)}."
            )
        if name in _TEXTS and not isinstance(value, str | Path):
            raise UserError(f"{name} must be a name or a path, which a run records. Got {as_written(value)}.")
    plain = {name: str(value) if isinstance(value, Path) else value for name, value in changes.items()}
    plain |= {name: (value,) for name, value in plain.items() if name in _LISTS and isinstance(value, str)}
    plain |= {name: tuple(value) for name, value in plain.items() if isinstance(value, list)}
    return dataclasses.replace(options, **plain)


@dataclass(frozen=True, kw_only=True, slots=True)
class GivenModel:
    """A model to measure, as it is or with random weights."""

    source: str
    name: str
    trained: bool

    def load(self, options: AnalyzeOptions) -> Model:
        model = load_model(
            self.source,
            tokenizer=options.tokenizer,
            device=options.device,
            dtype=_DTYPES[options.precision],
            source_language=options.source_language,
            target_language=options.target_language,
            prefix=options.prefix,
        )
        model = model if self.trained else untrained(model, options.seed)
        return dataclasses.replace(model, name=self.name)

    def subject(self, model: Model) -> Subject:
        """How tables identify the model once it is loaded."""
        return given_subject(model, self.name, trained=self.trained)

    @property
    def corruption(self) -> AbstractObjective | None:
        """How training corrupted text, if the model's folder records it; never the default assumption."""
        objective = trained_objective(self.source)
        return None if objective == MaskedLM() else objective


def given_subject(model: Model, name: str = "", *, trained: bool = True) -> Subject:
    """How tables identify a model that no study trained.

    Args:
        model: The model.
        name: Replaces the model's own name.
        trained: False: the control, the same architecture with random weights under the model's name.
    """
    recipe = Recipe(objective=Spec(model.task), architecture=Spec(family_of(model)), seed=0)
    return Subject(recipe=recipe, update=None if trained else UNTRAINED, given=name or model.name)


def family_of(model: Model) -> str:
    """The transformers name of the architecture."""
    return str(getattr(model.module.config, "model_type", ""))


def given_models(sources: Sequence[str], options: AnalyzeOptions) -> list[GivenModel]:
    """The models, then their controls if requested."""
    kinds = (True, False) if options.control else (True,)
    names = distinct_names(sources, options.anonymous)
    return [
        GivenModel(source=str(source), name=name, trained=trained)
        for trained in kinds
        for source, name in zip(sources, names, strict=True)
    ]


def distinct_names(sources: Sequence[str], anonymous: bool = False) -> list[str]:
    """The last part of each path, or as many parts as distinguish the models; a link keeps its own name.

    `anonymous` numbers local models instead.
    """
    parts = [Path(absolute(source) if exists(source) else source).parts for source in sources]
    for depth in range(1, max(map(len, parts)) + 1):
        names = ["/".join(part[-depth:]) for part in parts]
        if len(set(names)) < len(names):
            continue
        if not anonymous:
            return names
        local = [name for source, name in zip(sources, names, strict=True) if exists(source)]
        return [f"model-{local.index(name) + 1}" if name in local else name for name in names]
    raise UserError(f"Models must be distinct. Got {', '.join(map(str, sources))}.")


def exists(path: str | Path) -> bool:
    """Whether a file or folder of that name exists; a name that is too long has none."""
    return os.path.exists(path)  # noqa: PTH110 (that of pathlib raises before Python 3.12)


def untrained(model: Model, seed: int) -> Model:
    """The same architecture with random weights, as a control without any learning."""
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
