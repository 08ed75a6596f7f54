"""The table `[retrieval]` of a study's plan: matched masked LMs that differ only in which passage they may read."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal, Protocol, runtime_checkable

from infoflow.corpus import FactConfig
from infoflow.foundation import (
    Count,
    CountOrNone,
    LearningRate,
    Limits,
    Probability,
    Seed,
    Share,
    UserError,
    as_written,
    check_settings,
)
from infoflow.objectives import SOURCES, RetrievalLM, make_objective
from infoflow.training import ModelConfig, TrainConfig

from ._plan_checks import one_of

ArmName = Literal["closed-book", "read-gold", "read-random", "retrieve-bm25", "retrieve-frozen", "retrieve-learned"]
VariantName = Literal[
    "null-share", "cold", "stale", "random-token", "random-span", "same-wording", "pairs", "token-level", "exchange",
    "rag-sequence", "rag-token",
]  # fmt: skip
MeasureName = Literal[
    "scores", "knowledge", "conflict", "lens", "flow", "heads", "ablation", "ranking", "trees", "labels", "examples"
]
MEASURES: tuple[MeasureName, ...] = (
    "scores", "knowledge", "conflict", "lens", "flow", "heads", "ablation", "ranking", "trees", "labels", "examples",
)  # fmt: skip
Refresh = Annotated[int, Limits(at_least=-1, at_most=10**9)]
Relations = Annotated[int, Limits(at_least=2, at_most=64)]

_LEARNED = ("retrieve-learned",)
_LONGEST_QUESTION = 14  # tokens about a fact: a date in the longest frame, with [CLS] and [SEP]
OF_VARIANTS: Mapping[str, tuple[str, ...]] = {
    "null-share": ("closed-book",),  # trained on the share alone that the others read without a passage
    "cold": _LEARNED,  # no warm start
    "stale": _LEARNED,  # the index is built as seldom as `stale_refresh` says
    "random-token": _LEARNED,  # as many masks elsewhere
    "random-span": _LEARNED,
    "token-level": _LEARNED,  # the passage is summed out at each token
    "same-wording": ("retrieve-bm25", "retrieve-frozen", "retrieve-learned"),  # a world of shared words
    "pairs": ("read-gold",),  # passages about two entities in one relation: only the subject tells them apart
    "rag-sequence": _LEARNED,  # the reader writes: an encoder-decoder, whose encoder begins as the masked LM
    "rag-token": _LEARNED,  # the same, the passage summed out at each token
    "exchange": _LEARNED,  # parts of the trained model in place of those of the first, then trained on
}
"""Arms that each variant is trained of; those that a plan does not have are left out."""
WRITTEN = ("rag-sequence", "rag-token")
"""Variants whose reader writes its answers."""
EXCHANGES = ("exchange-both", "exchange-retriever", "exchange-reader", "exchange-neither")
"""The variants that "exchange" stands for: which parts are those of the trained model."""
OF_FACTS = ("same-wording", "pairs", *WRITTEN)
"""Variants that only a generated world has."""
OF_TEXT: tuple[MeasureName, ...] = ("scores",)
"""Measures that real text has."""
DATES = 2  # relations whose objects are dates


@dataclass(frozen=True, kw_only=True, slots=True)
class RetrievalPlan:
    """A world of facts or real text, and readers that are trained on questions about it; off unless asked for.

    Each reader is a masked LM of the study's `[model]`, trained as `[training]` says but for what stands here. The
    arms of a seed share their first reader bit for bit, their queries, masks and order. Every arm costs `updates` of
    64 short queries, each read 1 + k times where passages are searched: relative to `closed-book` 3.5 (`read-gold`,
    `read-random`), 6 (`retrieve-bm25`) and 8 (`retrieve-learned`) times as much.

    With `read_updates` the first reader of a seed is no random one: before all arms it learns, as `read-gold` does, to
    read right passages of another world, of the same words, relations and settings and of other facts. All arms begin
    with these weights (readers that write with its encoder and words), and it is what tables call untrained.

    With `corpus` readers are trained on questions about real passages: in SQuAD's format, or a table with columns for
    passage, question and answers. What is asked of a world of facts (exposures, facts withheld or changed, an edited
    index) does not exist there: the settings of the world are not read, and of the measures only "scores" is.
    """

    on: bool = False
    corpus: str = ""  # questions to train on, a file or hf:NAME; empty: a generated world of facts
    test: str = ""  # questions that are kept from training; empty: those about a fifth of the passages of `corpus`
    answer_tokens: Annotated[int, Limits(at_least=1, at_most=10)] = 3  # of an answer in `corpus`, each behind a mask
    entities: Annotated[int, Limits(at_least=2, at_most=1024)] = 256  # of the world
    relations: Relations = 8  # even; the last two are dates
    objects: Annotated[int, Limits(at_least=3, at_most=4096)] = 16  # of a pair of relations, which share them
    exposures: Annotated[tuple[int, ...], Limits(filled=True)] = (1, 4, 16)  # relative, of equally many facts each
    language: Share = 0.25  # of the queries are sentences of `grammar`, for which no passage helps
    wording: Literal["different", "same"] = "different"  # of the relation in queries and in passages
    passages: Literal["entity", "pairs"] = "entity"  # about one entity, or two in one relation
    world_seed: Seed = 0  # the same world for all seeds
    arms: Annotated[tuple[ArmName, ...], Limits(filled=True)] = (
        "closed-book", "read-gold", "read-random", "retrieve-bm25", "retrieve-frozen", "retrieve-learned",
    )  # fmt: skip
    variants: tuple[VariantName, ...] = ("null-share",)  # further runs, see `OF_VARIANTS`
    seeds: tuple[Seed, ...] = ()  # of readers, retrievers and order; empty: the study's
    k: Count = 2  # passages that a search brings
    null_share: Probability = 0.1  # of queries that are read without a passage, the same ones in every arm
    updates: Count = 2500
    queries: Count = 64  # of an update
    learning_rate: LearningRate = 1e-3  # of the reader, at its peak; 1.5e-3 left a reader of random passages at chance
    repeat: bool = True  # all arms once more at half the rate, if one of them learned nothing
    refresh_every: Refresh = 50  # updates between two builds of the index; −1: never again
    stale_refresh: Refresh = -1  # of the variant "stale"
    freeze_retriever: Probability = 1 / 3  # share of the updates in which a learned retriever stays as it is
    retriever_rate: Annotated[float, Limits(above=0, at_most=10)] = 0.2  # of a learned retriever, in the reader's rate
    retriever_layers: Annotated[int, Limits(at_least=1, at_most=1000)] = 2
    retriever_width: Annotated[int, Limits(at_least=0, at_most=65_536)] = 0  # 0: the reader's
    vector_width: Annotated[int, Limits(at_least=1, at_most=65_536)] = 64  # of what is compared
    warm_updates: CountOrNone = 300  # of the inverse cloze task, before arms with a retriever
    read_updates: CountOrNone = 0  # of reading right passages of another world, before all arms; 0: random weights
    exchange_updates: Count = 300  # of the variant "exchange"
    save_every: CountOrNone = 500  # updates between checkpoints
    measures: Annotated[tuple[MeasureName, ...], Limits(filled=True)] = MEASURES
    checkpoints: CountOrNone = 0  # of each plain arm's training, evenly apart, at which answers are looked at; 0: none
    # Of training queries: on these the loss change is allocated to retriever and reader while the plain arms train, by
    # the rule, the parts and the windows of [dynamics]; 0: it is not.
    allocation_tokens: CountOrNone = 0
    allocation_every: Count = 5  # updates between two looks at the loss
    allocation_negatives: Count = 2  # passages by BM25 that are read there beside the right one, whatever the arm

    def __post_init__(self) -> None:
        check_settings(self, "retrieval")
        for name in ("exposures", "arms", "variants", "seeds", "measures"):
            if len(set(values := getattr(self, name))) < len(values):
                raise UserError(f"retrieval.{name} must be a list of different values. Got {as_written(values)}.")
        for name in ("refresh_every", "stale_refresh"):
            if getattr(self, name) == 0:
                raise UserError(f"retrieval.{name} must be at least 1, or −1 for never. Got 0.")
        if self.checkpoints > self.updates:
            raise UserError(
                f"retrieval.checkpoints must be at most retrieval.updates. Got {self.checkpoints} and {self.updates}. "
                "Keep fewer, or train longer."
            )
        for name in self.variants:
            if not self.arms_of(name):
                raise UserError(
                    f"retrieval.variants must be of arms that are trained: {name} is of {', '.join(OF_VARIANTS[name])}."
                    f" Got the arms {', '.join(self.arms)}. Add one, or leave {name} out."
                )
        if self.corpus:
            self._check_text()
        elif self.test:
            raise UserError(
                f"retrieval.test must go with retrieval.corpus, the questions of training. Got {as_written(self.test)} "
                "alone."
            )
        self.world()

    def _check_text(self) -> None:
        """Raise a UserError where what only a world of facts has is asked of real text."""
        if wrong := [name for name in self.variants if name in OF_FACTS]:
            raise UserError(
                f"retrieval.variants must not hold {wrong[0]} with retrieval.corpus: it is about a generated world. "
                "Leave it out."
            )
        if self.read_updates:
            raise UserError(
                "retrieval.read_updates must be 0 with retrieval.corpus: it is another generated world that readers "
                f"learn to read in. Got {self.read_updates}."
            )
        if not set(self.measures) & set(OF_TEXT):
            raise UserError(
                f"retrieval.measures must hold {' or '.join(OF_TEXT)} with retrieval.corpus: the others are about "
                f"facts. Got {', '.join(self.measures)}."
            )
        if self.checkpoints:
            raise UserError(
                f"retrieval.checkpoints must be 0 with retrieval.corpus: answers over training are told of facts. Got "
                f"{self.checkpoints}."
            )

    def world(self, variant: str = "") -> FactConfig:
        """The world that a variant reads about.

        Raises:
            UserError: Its settings do not go together.
        """
        try:
            return FactConfig(
                entities=self.entities,
                relations=self.relations,
                objects=self.objects,
                weights=self.exposures,
                language=self.language,
                wording="same" if variant == "same-wording" else self.wording,
                passages="pairs" if variant == "pairs" else self.passages,
            )
        except UserError as error:
            named = str(error).replace("facts.weights", "retrieval.exposures").replace("facts.", "retrieval.")
            raise UserError(named) from None

    def arms_of(self, variant: str) -> list[str]:
        """The plan's arms that the variant is trained of."""
        return [name for name in self.arms if name in OF_VARIANTS[variant]]

    def objective(self, arm: str, variant: str = "") -> RetrievalLM:
        """What an arm is trained for."""
        plain = make_objective(
            arm,
            k=self.k,
            null_share=self.null_share,
            refresh_every=self.refresh_every,
            freeze_retriever=self.freeze_retriever,
            retriever_rate=self.retriever_rate,
        )
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
        """How a model of the table is trained: as the study's, but for what the table says."""
        room = self.queries * positions  # a whole update in one forward pass: its passages are its wrong answers
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
    """What of a study's plan the table is checked against."""

    @property
    def model(self) -> ModelConfig: ...
    @property
    def training(self) -> TrainConfig: ...
    @property
    def retrieval(self) -> RetrievalPlan: ...


def check_retrieval(plan: Retrieves) -> None:
    """Raise a UserError where readers of the plan's shape cannot be trained as the table asks."""
    asked, heads = plan.retrieval, plan.model.heads
    if asked.retriever_width % heads:
        raise UserError(
            f"retrieval.retriever_width must be a multiple of model.heads, or 0 for the reader's width. Got "
            f"{asked.retriever_width} and {heads} heads. Try {max(1, asked.retriever_width // heads) * heads}."
        )
    if not asked.on:
        return
    one_of("retrieval.arms", asked.arms, tuple(SOURCES))
    if not asked.corpus and plan.model.positions <= _LONGEST_QUESTION:
        raise UserError(
            f"model.positions must be at least {_LONGEST_QUESTION + 1} with retrieval.on: a question about a fact has "
            f"up to {_LONGEST_QUESTION} tokens, and a [SEP] behind. Got {plan.model.positions}. Try 64, with room "
            "for a passage."
        )
    if plan.training.learning_rate and asked.learning_rate * plan.training.weight_decay >= 1:
        raise UserError(
            "retrieval.learning_rate times training.weight_decay must be below 1. Got "
            f"{asked.learning_rate} and {plan.training.weight_decay}. Lower one of them."
        )
