"""The section `[retrieval]` of a study's plan: matched masked LMs that differ only in which passages they may read."""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Annotated, Any, Literal, Protocol, get_args, runtime_checkable

from infoflow.corpus import FactConfig, FactSettings
from infoflow.foundation import (
    Count,
    CountOrNone,
    File,
    LearningRate,
    Limits,
    Seed,
    UserError,
    as_written,
    check_settings,
    one_of,
)
from infoflow.objectives import make_objective
from infoflow.training import ModelConfig, TrainConfig

from .objectives._retrieval_lm import SOURCES, Refresh, RetrievalLM, RetrievalSettings

ArmName = Literal["closed-book", "read-gold", "read-random", "retrieve-bm25", "retrieve-frozen", "retrieve-learned"]
VariantName = Literal[
    "null-share", "cold", "stale", "random-token", "random-span", "same-wording", "pairs", "token-level", "exchange",
    "rag-sequence", "rag-token",
]  # fmt: skip
MeasureName = Literal[
    "scores", "knowledge", "conflict", "lens", "flow", "heads", "ablation", "ranking", "trees", "labels", "examples"
]
ARMS: tuple[ArmName, ...] = get_args(ArmName)
MEASURES: tuple[MeasureName, ...] = get_args(MeasureName)
Arms = Annotated[tuple[ArmName, ...], Limits(filled=True, distinct=True)]
Variants = Annotated[tuple[VariantName, ...], Limits(distinct=True)]
Measures = Annotated[tuple[MeasureName, ...], Limits(filled=True, distinct=True)]
Seeds = Annotated[tuple[Seed, ...], Limits(distinct=True)]
Exposures = Annotated[tuple[int, ...], Limits(filled=True, distinct=True)]

_LEARNED = ("retrieve-learned",)
_LONGEST_QUESTION = 14  # tokens of the longest question about a fact (a date), with [CLS] and [SEP]
OF_VARIANTS: Mapping[str, tuple[str, ...]] = {
    "null-share": ("closed-book",),  # trained only on the share that the others read without a passage
    "cold": _LEARNED,  # no warm start
    "stale": _LEARNED,  # the index is rebuilt only as often as `stale_refresh` says
    "random-token": _LEARNED,  # as many masks at other positions
    "random-span": _LEARNED,
    "token-level": _LEARNED,  # marginalised over passages at each token
    "same-wording": ("retrieve-bm25", "retrieve-frozen", "retrieve-learned"),  # a world with shared words
    "pairs": ("read-gold",),  # passages about two entities in one relation: only the subject distinguishes them
    "rag-sequence": _LEARNED,  # the reader generates: an encoder-decoder whose encoder starts as the masked LM
    "rag-token": _LEARNED,  # the same, marginalised over passages at each token
    "exchange": _LEARNED,  # parts of the trained model replace those of the initial one; then training continues
}
"""Variant → the `arms` that it modifies; arms that a plan lacks are left out."""
WRITTEN = ("rag-sequence", "rag-token")  # variants whose reader generates its answers
EXCHANGES = ("exchange-both", "exchange-retriever", "exchange-reader", "exchange-neither")
"""The variants that "exchange" expands to; the names say which parts come from the trained model."""
OF_FACTS = ("same-wording", "pairs", *WRITTEN)  # variants that need a generated world
OF_TEXT: tuple[MeasureName, ...] = ("scores",)  # measures available for real text


@dataclass(frozen=True, kw_only=True, slots=True)
class RetrievalPlan(FactSettings, RetrievalSettings):
    """A world of facts or real text, and readers trained on questions about it; disabled by default.

    Each reader is a masked LM of the study's `[model]`, trained as in `[training]` except for the settings below. All
    variants of a seed share their initial reader bit for bit, and their queries, masks and order. Each is trained for
    `updates` of 64 short queries, each read 1 + k times if passages are searched. Compared with `closed-book`, this
    costs 3.5 (`read-gold`, `read-random`), 6 (`retrieve-bm25`) or 8 (`retrieve-learned`) times as much.

    With `read_updates`, the initial reader of a seed is pretrained: like `read-gold`, it learns to read gold passages
    of another world with the same words, relations and settings but other facts. All variants start from these weights
    (generating readers from its encoder and word embeddings), and tables call this state untrained.

    With `corpus`, readers are trained on questions about real passages, in SQuAD's format or in a table with columns
    for passage, question and answers. Features of a world of facts (exposures, facts withheld or changed, an edited
    index) do not exist there, so the world's settings are ignored, and "scores" is the only measure.
    """

    on: bool = False
    corpus: File = ""  # training questions, a file or hf:NAME; empty: a generated world of facts
    test: File = ""  # test questions; empty: those about a fifth of the passages of `corpus`
    answer_tokens: Annotated[int, Limits(at_least=1, at_most=10)] = 3  # tokens of an answer in `corpus`, one mask each
    entities: Annotated[int, Limits(at_least=2, at_most=1024)] = 256  # size of the world
    exposures: Exposures = (1, 4, 16)  # relative exposures; each has the same number of facts
    world_seed: Seed = 0  # all seeds of a study share one world
    arms: Arms = ARMS
    variants: Variants = ("null-share",)  # additional variants, see `OF_VARIANTS`
    seeds: Seeds = ()  # seeds of readers, retrievers and order; empty: the study's seeds
    updates: Count = 2500
    queries: Count = 64  # queries of an update
    learning_rate: LearningRate = 1e-3  # peak rate of the reader; 1.5e-3 left a reader of random passages at chance
    repeat: bool = True  # train all models again at half the rate if one of them learned nothing
    stale_refresh: Refresh = -1  # updates between two builds of the index in the variant "stale"
    retriever_width: Annotated[int, Limits(at_least=0, at_most=65_536)] = 0  # 0: the reader's width
    vector_width: Annotated[int, Limits(at_least=1, at_most=65_536)] = 64  # dimensions of compared embeddings
    warm_updates: CountOrNone = 300  # updates on the inverse cloze task, before training variants with a retriever
    read_updates: CountOrNone = 0  # updates on gold passages of another world, before all variants; 0: random weights
    exchange_updates: Count = 300  # further updates in the variant "exchange"
    save_every: CountOrNone = 500  # updates between checkpoints
    measures: Measures = MEASURES
    checkpoints: CountOrNone = 0  # evenly spaced updates of each plain training at which answers are evaluated; 0: none
    # Tokens of training queries on which loss changes are allocated to retriever and reader while the plain models
    # train, with the rule, parts and windows of [dynamics]; 0: disabled.
    allocation_tokens: CountOrNone = 0
    allocation_every: Count = 5  # updates between two loss evaluations
    allocation_negatives: Count = 2  # BM25 passages that these queries read besides the gold one, for every model

    def __post_init__(self) -> None:
        check_settings(self, "retrieval")
        if self.checkpoints > self.updates:
            raise UserError(
                f"retrieval.checkpoints must be at most retrieval.updates. Got {self.checkpoints} and {self.updates}. "
                "Keep fewer, or train longer."
            )
        for name in self.variants:
            if not self.arms_of(name):
                raise UserError(
                    f"retrieval.variants must modify one of retrieval.arms: {name} modifies "
                    f"{', '.join(OF_VARIANTS[name])}."
                    f" Got the arms {', '.join(self.arms)}. Add one, or leave {name} out."
                )
        if self.corpus:
            self._check_text()
        elif self.test:
            raise UserError(f"retrieval.test must go with retrieval.corpus. Got {as_written(self.test)}.")
        self.world()

    def _check_text(self) -> None:
        """Raise a UserError if settings that need a world of facts are combined with real text."""
        if wrong := [name for name in self.variants if name in OF_FACTS]:
            raise UserError(
                f"retrieval.variants must not contain {wrong[0]} with retrieval.corpus: it needs a generated world. "
                "Leave it out."
            )
        if self.read_updates:
            raise UserError(
                "retrieval.read_updates must be 0 with retrieval.corpus: readers can only learn to read in a generated "
                f"world. Got {self.read_updates}."
            )
        if not set(self.measures) & set(OF_TEXT):
            raise UserError(
                f"retrieval.measures must contain {' or '.join(OF_TEXT)} with retrieval.corpus: the others need a "
                f"world of facts. Got {', '.join(self.measures)}."
            )
        if self.checkpoints:
            raise UserError(
                "retrieval.checkpoints must be 0 with retrieval.corpus: answers over training need a world of facts. "
                f"Got {self.checkpoints}."
            )

    def world(self, variant: str = "") -> FactConfig:
        """The world that a variant reads."""
        shared: dict[str, Any] = {one.name: getattr(self, one.name) for one in fields(FactSettings)}
        shared |= {"same-wording": {"wording": "same"}, "pairs": {"passages": "pairs"}}.get(variant, {})
        try:
            return FactConfig(entities=self.entities, weights=self.exposures, **shared)
        except UserError as error:
            named = str(error).replace("facts.weights", "retrieval.exposures").replace("facts.", "retrieval.")
            raise UserError(named) from None

    def arms_of(self, variant: str) -> list[str]:
        """The plan's `arms` that the variant modifies."""
        return [name for name in self.arms if name in OF_VARIANTS[variant]]

    def objective(self, arm: str, variant: str = "") -> RetrievalLM:
        """The training objective of a model."""
        plain = make_objective(arm, **{one.name: getattr(self, one.name) for one in fields(RetrievalSettings)})
        assert isinstance(plain, RetrievalLM)
        if variant in EXCHANGES:
            return replace(plain, freeze_retriever=0.0)
        changes: dict[str, dict[str, Any]] = {
            "null-share": {"null_share_only": True},
            "stale": {"refresh_every": self.stale_refresh},
            "random-token": {"masking": "random-token"},
            "random-span": {"masking": "random-span"},
            "token-level": {"level": "token"},
            "rag-token": {"level": "token"},
        }
        return replace(plain, **changes.get(variant, {}))

    def config(self, training: TrainConfig, seed: int, positions: int, updates: int, rate: float) -> TrainConfig:
        """Training settings of a model: the study's, overridden by this section."""
        room = self.queries * positions  # a whole update in one forward pass, since its passages serve as negatives
        return replace(
            training,
            updates=updates,
            max_source_tokens=None,
            batch_tokens=room,
            micro_tokens=room,
            batch_sentences=self.queries,
            seed=seed,
            learning_rate=rate,
            end_learning_rate=min(training.end_learning_rate, rate),
            label_smoothing=0.0,
            evaluate_every=0,
            save_every=self.save_every,
            keep_last=1,
        )


@runtime_checkable
class Retrieves(Protocol):
    """The parts of a study's plan with which the section must agree."""

    @property
    def model(self) -> ModelConfig: ...
    @property
    def training(self) -> TrainConfig: ...
    @property
    def retrieval(self) -> RetrievalPlan: ...


def check_retrieval(plan: Retrieves) -> None:
    """Raise a UserError if readers of the plan's shape cannot be trained as the section requests."""
    section, heads = plan.retrieval, plan.model.heads
    if section.retriever_width % heads:
        raise UserError(
            f"retrieval.retriever_width must be a multiple of model.heads, or 0 for the reader's width. Got "
            f"{section.retriever_width} and {heads} heads. Try {max(1, section.retriever_width // heads) * heads}."
        )
    if not section.on:
        return
    one_of("retrieval.arms", section.arms, tuple(SOURCES))
    if not section.corpus and plan.model.positions <= _LONGEST_QUESTION:
        raise UserError(
            f"model.positions must be at least {_LONGEST_QUESTION + 1} with retrieval.on: a question about a fact has "
            f"up to {_LONGEST_QUESTION} tokens, followed by [SEP]. Got {plan.model.positions}. Try 64, which leaves "
            "room for a passage."
        )
    if plan.training.learning_rate and section.learning_rate * plan.training.weight_decay >= 1:
        raise UserError(
            "retrieval.learning_rate times training.weight_decay must be below 1. Got "
            f"{section.learning_rate} and {plan.training.weight_decay}. Lower one of them."
        )


SECTIONS = {"retrieval": RetrievalPlan}
CHECKS = (check_retrieval,)
