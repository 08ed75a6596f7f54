"""The sections of a study's plan, one class for each TOML table, and the checks between them."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, make_dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

from infoflow._subjects import provided
from infoflow.architectures import FAMILIES, check_trained_on
from infoflow.corpus import Lines, SplitRule, TextColumns
from infoflow.flow import PassOptions
from infoflow.foundation import (
    LATER,
    Count,
    CountOrNone,
    DistinctNames,
    File,
    LearningRate,
    Limits,
    RequiredFile,
    Several,
    Share,
    Threads,
    UserError,
    as_written,
    check_settings,
    named_fields,
    one_of,
)
from infoflow.objectives import further_objectives
from infoflow.training import DEFAULT_SCHEDULE, TrainConfig, checkpoint_steps

if TYPE_CHECKING:
    from ._plan import CorePlan


Reference = Literal["final", "previous", "initial", "other-seed"]
Closed = Literal["encoder-self", "decoder-self"]
Subwords = Annotated[int, Limits(at_least=6, at_most=10**6)]
Clusters = Annotated[int, Limits(at_least=0, at_most=65_535)]
Few = Annotated[int, Limits(at_least=1, at_most=1000)]
Bytes = Annotated[int, Limits(at_least=1, at_most=1 << 50)]
Points = Annotated[int, Limits(at_least=12, at_most=10**4)]
Fitted = Annotated[int, Limits(at_least=500, at_most=10**9)]


@dataclass(frozen=True, kw_only=True, slots=True)
class CorpusPlan(TextColumns):
    """The sentences of a study and how they are split."""

    name: RequiredFile = "tatoeba-en-fr"  # anything that `load_corpus` accepts; translation needs a parallel corpus
    lines: Lines = "sentences"  # of a text file or a text column; "paragraphs" are split into sentences
    min_words: Count = 1  # limits on the source sentence
    max_words: Count = 24
    sentences: CountOrNone = 0  # maximum number of training sentences (pairs); 0: all
    validation: Share = 0.02  # share of distinct source sentences
    test: Share = 0.10  # models are scored and analysed on it
    split: SplitRule = "near-duplicates"  # what parts must not share; "both-sides", "source": see `Corpus.split`
    validation_name: File = ""  # a published corpus instead of the share; as `name`
    test_name: File = ""  # likewise; the training part leaves out sentences that occur in either
    transfer_name: File = ""  # a corpus of another domain, as `name`, to test whether the same heads matter there
    vocabulary: Subwords = 4000  # subwords per language, including special tokens
    lowercase: bool = True
    # One vocabulary for both languages, which families with a single embedding table (t5) need for translation.
    joint_vocabulary: bool = field(default=False, metadata=LATER)

    def __post_init__(self) -> None:
        check_settings(self, "corpus")
        if self.min_words > self.max_words:
            raise UserError(
                "corpus.min_words must be at most corpus.max_words, or no sentence is left. Got "
                f"{self.min_words} and {self.max_words}. Lower the former or raise the latter."
            )
        if self.validation + self.test >= 1:
            raise UserError(
                "corpus.validation and corpus.test must leave a share for training: their sum must be below 1. Got "
                f"{self.validation} and {self.test}. Lower one of them."
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class AnalysisPlan:
    """How the models of a study are scored and measured, on sentences that they were not trained on."""

    tables: tuple[str, ...] = ()  # names of the tables to compute; empty: all, "task_scores": only scores
    sentences: CountOrNone = 0  # maximum number from the test part; 0: all
    occurrences: Count = 1_000_000  # maximum number of tokens for mutual information
    types: Several = 1000  # most frequent tokens used for mutual information
    clusters: Clusters = 0  # for mutual information; 0: by the number of tokens, at most 500 (see training_sentences)
    clusterings: Few = 2  # repetitions with other rows and starts; intervals include their spread
    usable_occurrences: Fitted = field(default=40_000, metadata=LATER)  # sampled tokens for usable information
    # Also measure the information that a probe with a hidden layer reads, and that in clusters without position means.
    more_information: bool = field(default=False, metadata=LATER)
    # Maximum number of training sentences from which information in clusters also learns (up to 10,000 clusters then).
    training_sentences: CountOrNone = field(default=0, metadata=LATER)
    distance_occurrences: Several = 20_000  # sampled tokens for PWCCA
    neighbour_occurrences: Count = 20_000
    neighbours: Count = 50
    frequency_occurrences: Count = 3000  # tokens of each frequency bin, for change and influence by frequency
    lens_steps: Count = 200  # updates of the tuned lens
    lens_tokens: Count = 64  # tokens per update of the tuned lens
    relevance_sentences: Count = 100  # sentences for which the relevance of every head is computed
    importance_sentences: Count = 400  # sentences whose loss is differentiated with respect to every head's gate
    ablation_sentences: Count = 48  # sentences that are read again without each head; pruning curves use half
    context_sentences: Count = field(default=400, metadata=LATER)  # sentences read again with closed attention
    probe_sentences: Several = 1000  # sentences with trees that train and test the probes of attention
    map_points: Points = field(default=300, metadata=LATER)  # maximum tokens of each token map
    bleu_sentences: Count = 300
    beams: Few = 5
    tokens_per_batch: Annotated[int, Limits(at_least=1, at_most=10**8)] = 8192
    sample_bytes: Bytes = field(default=1 << 30, metadata=LATER)  # of sampled tokens' states on disk, per stack
    attention_bytes: Bytes = field(default=1 << 28, metadata=LATER)  # attention weights held at a time
    untrained: bool = True  # also measure the initial weights of every seed, as a control

    def __post_init__(self) -> None:
        check_settings(self, "analysis")
        if self.clusters == 1:
            raise UserError("analysis.clusters must be at least 2, or 0 to choose it by the number of tokens. Got 1.")

    @property
    def budget(self) -> list[int]:
        """The byte budget of samples for content keys; empty at the default, as in versions without this setting."""
        return [self.sample_bytes] if "sample_bytes" in named_fields(self) else []

    def passes(self, **others: Any) -> PassOptions:
        """How sentences are run through models; `others` are options that the plan does not set."""
        shared = {one.name for one in fields(PassOptions)} & {one.name for one in fields(self)}
        return PassOptions(**{name: getattr(self, name) for name in shared}, **others)


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckpointsPlan:
    """Which updates of every training run are kept, and what is measured at them. Without a schedule, none are kept.

    Keeping checkpoints leaves the training unchanged, bit for bit. Each checkpoint takes 4 bytes per parameter.
    """

    schedule: str = ""  # log:K, linear:K, every:M, powers, 0,10,500, joined by +; "default": log:16+linear:8; "": none
    dtype: Literal["float32", "bfloat16"] = "float32"  # of the kept weights; the first and the last stay float32
    budget: Annotated[float, Limits(above=0, at_most=1e6)] = 4.0  # maximum GB for all checkpoints of a study
    light: tuple[str, ...] = ()  # tables at every checkpoint; empty: cheap ones that show when things change
    heavy: tuple[str, ...] = ()  # additional tables only at `heavy_steps`
    heavy_steps: str = "linear:4"  # a schedule; each step uses the nearest kept update
    references: tuple[Reference, ...] = ("final", "previous", "initial", "other-seed")  # for layer comparison
    sentences: Count = 2000  # of the analysed sentences, at every checkpoint
    occurrences: Count = 10_000  # tokens for mutual information and geometry

    def __post_init__(self) -> None:
        check_settings(self, "checkpoints")

    @property
    def on(self) -> bool:
        return bool(self.schedule)

    def steps(self, training: TrainConfig) -> list[int]:
        """The kept updates of a training run, including 0 and the last; empty if none are kept.

        Raises:
            UserError: The schedule cannot be read, or names an update beyond the training.
        """
        if not self.on:
            return []
        words = DEFAULT_SCHEDULE if self.schedule == "default" else self.schedule
        return checkpoint_steps(words, training.updates, min(training.warmup_updates, training.updates))


@dataclass(frozen=True, kw_only=True, slots=True)
class ContextPlan:
    """How converged models are retrained with closed self-attention, with a fully open control; off by default.

    In closed self-attention, each token attends only to itself. Closing it at test time (the table `encoder_context`,
    for every model) shows what a model uses; the loss that remains after retraining without a context shows what only
    that context provides. A model is retrained once with all attention open, and once for each of the `kinds` of
    attention that it has; each retraining takes `updates` updates. Models that translate are also scored on greedy
    translations.
    """

    on: bool = False
    objectives: DistinctNames = ("translation",)  # objectives whose models are retrained, at every seed
    kinds: Annotated[tuple[Closed, ...], Limits(filled=True)] = ("encoder-self", "decoder-self")
    updates: Count = 500
    learning_rate: LearningRate = 5e-4  # peak; it rises over a tenth of the updates and decays to 0
    sentences: CountOrNone = 400  # of the analysed sentences, for the loss; 0: all
    bleu_sentences: CountOrNone = 100  # of the analysed sentences, translated open and closed; 0: none
    save_every: CountOrNone = 250  # updates between checkpoints

    def __post_init__(self) -> None:
        check_settings(self, "context")


@dataclass(frozen=True, kw_only=True, slots=True)
class EnginePlan:
    """How the stages of a study are run, on any engine."""

    threads: Threads = 1  # of each stage on a CPU; another number changes the last bits of trained weights
    # Concurrent stages on one GPU, since small models leave most of it idle. No result depends on this.
    per_gpu: Count = field(default=1, metadata=LATER)

    def __post_init__(self) -> None:
        check_settings(self, "engine")


def with_sections(core: type, name: str, hook: str, about: str) -> type:
    """The dataclass `core` with the sections of all subjects after its own fields; `about` is its docstring."""
    found = {section: kind for own in provided("settings", hook) for section, kind in own.items()}
    added = [
        (one, kind, field(default_factory=kind if isinstance(kind, type) else tuple)) for one, kind in found.items()
    ]
    made = make_dataclass(name, added, bases=(core,), frozen=True, kw_only=True, slots=True)
    made.__module__, made.__doc__ = core.__module__, about
    return made


_VARIANT = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]{0,40}")
TEACHING = ("encoder", "encoder-pair", "encoder-spans")  # layouts of masked LMs
PAIRS = ("objectives", "neighbours")
TOKEN_DROPOUT = "token-dropout"
"""Name of the variant whose input tokens are partly replaced in training: `translation+token-dropout`."""


def check_plan(plan: "CorePlan") -> None:
    """Raise a UserError if a part of the plan lacks what another part needs."""
    _check_variants(plan.variants)
    for name in plan.objectives:
        _check_read(plan.objective(name).name)
    _check_teachers(plan)
    _check_architectures(plan)
    if plan.context.on:
        one_of("context.objectives", plan.context.objectives, plan.objectives)
        check_trained_on("context", {name: plan.objective(name).layout for name in plan.context.objectives})
        _check_retrained(plan)
    for pair in plan.pairs:
        _check_pair(plan, pair)
    _check_schedules(plan)


def _check_variants(variants: Mapping[str, Mapping[str, Any]]) -> None:
    if wrong := [name for name in variants if not _VARIANT.fullmatch(str(name)) or name == TOKEN_DROPOUT]:
        raise UserError(
            "The name of a variant must be letters, digits and hyphens, and not token-dropout. "
            f"Got {as_written(wrong[0])}. Choose another."
        )


def _check_read(name: str) -> None:
    if name in further_objectives():
        raise UserError(
            "An objective of a plan or of infoflow train must learn from the sentences of a corpus. "
            f"Got {name}, which also reads passages.\n"
            "Set [retrieval] on = true in a plan (as in infoflow study retrieval), or train it in Python: "
            "see docs/retrieval.md."
        )


def _check_retrained(plan: "CorePlan") -> None:
    for name in plan.context.objectives:
        objective = plan.objective(name)
        if objective.layout == "encoder-decoder" and not objective.needs_translation:
            raise UserError(
                "context.objectives must be language models or translation models: a decoder that restores parts of "
                f"texts cannot be scored on whole ones. Got {name}. Leave it out."
            )


def _check_schedules(plan: "CorePlan") -> None:
    section, updates = plan.checkpoints, plan.training.updates
    for name, schedule in (("schedule", section.schedule), ("heavy_steps", section.heavy_steps)):
        if not schedule and name == "schedule":
            continue  # no checkpoint is kept
        try:
            checkpoint_steps(DEFAULT_SCHEDULE if schedule == "default" else schedule, updates)
        except UserError:
            raise UserError(
                f"checkpoints.{name} must be log:K, linear:K or every:M (K and M from 1), powers, default, or "
                f"different updates up to the last, {updates:,}, such as 0,{max(1, updates // 2)},{updates}; "
                f"join several with +. Got {as_written(schedule)}."
            ) from None


def _check_teachers(plan: "CorePlan") -> None:
    for name in plan.objectives:
        teacher = plan.objective(name).teacher
        if teacher and (teacher not in plan.objectives or plan.objective(teacher).layout not in TEACHING):
            raise UserError(
                f"{name} learns from a masked LM of the same plan. Got the teacher {as_written(teacher)}, and the "
                f"objectives {', '.join(plan.objectives)}.\nAdd masked-lm to objectives, or name a teacher in "
                "[variants.NAME]."
            )


def _check_architectures(plan: "CorePlan") -> None:
    one_of("architectures", plan.architectures, tuple(FAMILIES))
    plan.model.check_families(plan.architectures)
    for family in plan.architectures:
        FAMILIES[family].check(plan.model)
    for name in plan.objectives:
        if not any(plan.fits(name, family) for family in plan.architectures):
            layout = plan.objective(name).layout
            have = ", ".join(family for family in FAMILIES if plan.fits(name, family))
            if one_table := [family for family in plan.architectures if layout in FAMILIES[family].layouts]:
                raise UserError(
                    f"{one_table[0]} has a single embedding table, so it needs a single vocabulary. {name} has "
                    f"one per language.\nSet [corpus] joint_vocabulary = true, or add one of: {have}."
                )
            raise UserError(
                f"{name} needs the layout {as_written(layout)}, which none of the plan's architectures "
                f"has. Got {', '.join(plan.architectures)}.\nAdd one of: {have}."
            )
    for family in plan.architectures:
        if not any(plan.fits(name, family) for name in plan.objectives):
            raise UserError(
                f"None of the plan's objectives fits the architecture {family}, which has the layouts "
                f"{', '.join(FAMILIES[family].layouts)}. Got {', '.join(plan.objectives)}.\nLeave it out, or add "
                "an objective."
            )


def _check_pair(plan: "CorePlan", pair: str) -> None:
    if pair in PAIRS:
        return
    names = pair.split("|")
    if len(names) != 2 or not set(names) <= set(plan.objectives):
        raise UserError(
            f'pairs must be among {", ".join(PAIRS)}, or two objectives of the plan written "NAME|NAME". '
            f"Got {as_written(pair)}. Its objectives: {', '.join(plan.objectives)}."
        )
