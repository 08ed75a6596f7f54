"""The parts of a study's plan: one class for each table of the TOML file that has settings of its own."""

from dataclasses import dataclass, field, fields
from typing import Annotated, Literal

from infoflow.corpus import Lines, SplitRule
from infoflow.dynamics import Lags, Panels, RecordConfig, Rule, Tolerance, Windows
from infoflow.foundation import (
    LATER,
    Count,
    CountOrNone,
    LearningRate,
    Limits,
    Name,
    Several,
    Share,
    Threads,
    UserError,
    Weight,
    check_settings,
)
from infoflow.over_training import DEFAULT_SCHEDULE, checkpoint_steps
from infoflow.pruning import GREEDY
from infoflow.training import TrainConfig

from ._plan_checks import one_of

Reference = Literal["final", "previous", "initial", "other-seed"]
Scope = Literal["encoder-self", "decoder-self", "decoder-cross", "all"]
Closed = Literal["encoder-self", "decoder-self"]
Heads = Annotated[float, Limits(at_least=0, at_most=10**6)]
Penalties = Annotated[tuple[Weight, ...], Limits(filled=True)]
Objectives = Annotated[tuple[str, ...], Limits(filled=True)]
Subwords = Annotated[int, Limits(at_least=6, at_most=10**6)]
Clusters = Annotated[int, Limits(at_least=0, at_most=65_535)]
Few = Annotated[int, Limits(at_least=1, at_most=1000)]
Points = Annotated[int, Limits(at_least=12, at_most=10**4)]


@dataclass(frozen=True, kw_only=True, slots=True)
class CorpusPlan:
    """The sentences of a study and how they are cut up."""

    name: Name = "tatoeba-en-fr"  # anything that `load_corpus` takes; translation needs a parallel one
    text_column: str = ""  # of the sentences, where `name` and the parts below are tables or datasets
    translation_column: str = ""
    document_column: str = ""  # of the name of each sentence's document, for objectives that read documents
    documents: bool = False  # of a text file, blank lines between them, or of CoNLL-U, each begun by # newdoc
    lines: Lines = "sentences"  # of a text file or a text column; "paragraphs" are cut into sentences
    min_words: Count = 1  # of the source sentence
    max_words: Count = 24
    sentences: CountOrNone = 0  # training sentences (pairs) at most; 0: all
    validation: Share = 0.02  # share of distinct source sentences
    test: Share = 0.10  # what models are scored and analysed on
    split: SplitRule = "near-duplicates"  # what parts do not share; "both-sides", "source": see `Corpus.split`
    validation_name: str = ""  # a corpus of its own instead of the share, where one is published; as `name`
    test_name: str = ""  # likewise; training sentences that are in either are left out
    transfer_name: str = ""  # a corpus of another domain, as `name`: do heads that matter here matter there?
    vocabulary: Subwords = 4000  # subwords per language, special tokens included
    lowercase: bool = True
    # Both languages in one vocabulary, as families with one table of embeddings (t5) need to translate.
    joint_vocabulary: bool = field(default=False, metadata=LATER)

    def __post_init__(self) -> None:
        check_settings(self, "corpus")
        if self.min_words > self.max_words:
            raise UserError(
                "corpus.min_words must be at most corpus.max_words, or no sentence is left. Got "
                f"{self.min_words} and {self.max_words}. Lower the one or raise the other."
            )
        if self.validation + self.test >= 1:
            raise UserError(
                "corpus.validation and corpus.test must leave a share for training: below 1 together. Got "
                f"{self.validation} and {self.test}. Lower one of them."
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class AnalysisPlan:
    """How the models of a study are scored and measured, on sentences they were not trained on."""

    tables: tuple[str, ...] = ()  # what to measure, by the names of tables; empty: all, "task_scores": only scores
    sentences: CountOrNone = 0  # of the test part at most; 0: all
    occurrences: Count = 1_000_000  # tokens that mutual information counts at most
    types: Several = 1000  # most frequent tokens that mutual information looks at
    clusters: Clusters = 0  # of states, for mutual information; 0: by the number of tokens, at most 500
    clusterings: Few = 2  # with other rows and starts: intervals carry their spread
    distance_occurrences: Count = 20_000  # sampled tokens for PWCCA
    neighbour_occurrences: Count = 20_000
    neighbours: Count = 50
    frequency_occurrences: Count = 3000  # of each frequency bin, for change and influence by frequency
    lens_steps: Count = 200  # updates of the tuned lens
    lens_tokens: Count = 64  # tokens per update of the tuned lens
    relevance_sentences: Count = 100  # whose relevance is traced to every head
    importance_sentences: Count = 400  # whose loss is differentiated by every head's gate
    ablation_sentences: Count = 48  # that are read again without each head; curves of removal take half
    context_sentences: Count = field(default=400, metadata=LATER)  # read again with blocks' attention closed
    probe_sentences: Several = 1000  # with trees, to train and test the probes of attention
    map_points: Points = field(default=300, metadata=LATER)  # of each map of tokens at most
    bleu_sentences: Count = 300
    beams: Few = 5
    tokens_per_batch: Annotated[int, Limits(at_least=1, at_most=10**8)] = 8192
    untrained: bool = True  # measure the initial weights of every seed too: the control

    def __post_init__(self) -> None:
        check_settings(self, "analysis")
        if self.clusters == 1:
            raise UserError("analysis.clusters must be at least 2, or 0 for a number by the tokens. Got 1.")


@dataclass(frozen=True, kw_only=True, slots=True)
class AlignmentPlan:
    """How each seed's masked LM is aligned to its translation encoder; a study without one of the two aligns nothing.

    The published learning rates (5e-5 and 3e-5) are for BERT and hundreds of thousands of sentences; the small models
    of a study move too little at them.
    """

    on: bool = True
    sentences: Several = 4000  # of the training part, for the explicit alignment and each of its two trained controls
    pairs: CountOrNone = 8000  # sentence pairs of the training part, for the implicit alignment; 0: none
    held_out: Count = 1000  # sentences of the analysed part that all encoders are compared on
    learning_rate: LearningRate = 1e-3
    batch_sentences: Count = 32
    save_every: CountOrNone = 500  # updates between checkpoints

    def __post_init__(self) -> None:
        check_settings(self, "alignment")


@dataclass(frozen=True, kw_only=True, slots=True)
class DynamicsPlan:
    """How loss changes are allocated to parameters while the models of a study train; off unless asked for.

    A recording leaves the weights as they are, bit for bit. It costs about (tokens + held_out_tokens) / batch_tokens of
    the training once more, with `every` above 1 that much less.
    """

    on: bool = False
    rule: Rule = "trapezoid"
    splits: Panels = 1  # panels of the rule
    tolerance: Tolerance = 0.0  # above 0, in nats: Simpson's panels double while a chord's residual is above it
    max_splits: Panels = 32
    every: Count = 1  # updates per chord; above 1 for sums only, not for counts of hurting steps
    tokens: Count = 2048  # source tokens of training sentences that the loss is taken on
    held_out_tokens: CountOrNone = 1024  # of validation sentences; 0: none
    parts: Few = 4  # disjoint parts of these: intervals and reliability come from them
    windows: Windows = 200  # rows over time at most
    lags: Lags = 0  # most chords between a movement and the gradient it is compared with; 2 copies of the weights each

    def __post_init__(self) -> None:
        check_settings(self, "dynamics")
        self.record()

    def record(self) -> RecordConfig:
        """What the recorder is told."""
        shared = {one.name for one in fields(RecordConfig)} & {one.name for one in fields(self)}
        return RecordConfig(**{name: getattr(self, name) for name in shared})


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckpointsPlan:
    """Which updates of every training are kept, and what is measured at them; none unless a schedule is given.

    Keeping them leaves the training as it is, bit for bit; each takes 4 bytes for every parameter.
    """

    schedule: str = ""  # log:K, linear:K, every:M, powers, 0,10,500, joined by +; "default": log:16+linear:8; "": none
    dtype: Literal["float32", "bfloat16"] = "float32"  # of the kept weights; the first and the last stay float32
    budget: Annotated[float, Limits(above=0, at_most=1e6)] = 4.0  # GB for all checkpoints of a study, at most
    light: tuple[str, ...] = ()  # tables at every checkpoint; empty: those that are cheap and say when
    heavy: tuple[str, ...] = ()  # tables at `heavy_steps` alone
    heavy_steps: str = "linear:4"  # a schedule; of the kept updates the nearest
    references: tuple[Reference, ...] = ("final", "previous", "initial", "other-seed")  # that layers are compared with
    sentences: Count = 2000  # of the analysed ones, at every checkpoint
    occurrences: Count = 10_000  # tokens that mutual information and geometry look at

    def __post_init__(self) -> None:
        check_settings(self, "checkpoints")

    @property
    def on(self) -> bool:
        return bool(self.schedule)

    def steps(self, training: TrainConfig) -> list[int]:
        """The updates that are kept of a training, 0 and the last among them; empty where none are.

        Raises:
            UserError: The schedule cannot be read, or names an update beyond the training.
        """
        if not self.on:
            return []
        words = DEFAULT_SCHEDULE if self.schedule == "default" else self.schedule
        return checkpoint_steps(words, training.updates, min(training.warmup_updates, training.updates))


@dataclass(frozen=True, kw_only=True, slots=True)
class PruningPlan:
    """How heads of a study's converged models are pruned; off unless asked for.

    A scope is a kind of attention ("encoder-self", "decoder-self", "decoder-cross") or "all": whose heads may go. A
    model is pruned in those scopes that it has. In numbers of heads, below 1 is a share of the scope's.

    Gates learn on from one penalty to the next, so penalties should rise; 0 is the control of whether gates decide. At
    width 128 on short sentences (250 updates each) 0.003 left 33 of 48 encoder heads, 0.01 left 16, and 0.03 left 6 at
    half a BLEU. More updates decide more gates.

    Each point costs `updates` of training where gates learn (the same again for each number of `subset`, twice with
    `straight_through`, a whole training for each point from scratch, two of `recover_updates` for each point that
    recovers and one more for all heads), and everywhere a reading of `score_sentences`, their translation by beam
    search unless `metric` is "loss", and for `roles` one of `role_sentences` with attention.
    """

    on: bool = False
    objectives: Objectives = ("translation",)  # whose models are pruned, at every seed
    scopes: Annotated[tuple[Scope, ...], Limits(filled=True)] = ("encoder-self", "all")
    penalties: Penalties = (0.0, 0.003, 0.01, 0.03, 0.1, 0.3)  # times open heads, mean over attentions
    updates: Count = 500  # at each penalty
    learning_rate: LearningRate = 2e-4  # constant
    gate_rate: Annotated[float, Limits(above=0, at_most=1e6)] = 100.0  # multiple of it for the gates
    greedy: tuple[str, ...] = ("importance", "confidence", "relevance", "random")  # and "iterative" (importance)
    random_draws: Annotated[int, Limits(at_least=0, at_most=1000)] = 3
    keep: tuple[Heads, ...] = ()  # numbers of heads of the greedy choices; empty: as many as the gates left
    subset: tuple[Heads, ...] = ()  # numbers of heads that are learned as exactly so many
    straight_through: bool = False  # learn them also with gates that are 0 or 1 in every update
    scratch: bool = False  # train from the start, as long as the model, with the heads that a sweep's point left
    scratch_scopes: tuple[Scope, ...] = ()  # empty: all
    scratch_points: tuple[CountOrNone, ...] = ()  # of the sweep, from 0; empty: all
    recover: bool = False  # train on what a sweep's point left; beside it as many random heads, and all heads
    recover_points: tuple[CountOrNone, ...] = ()  # of the sweep, from 0; empty: all at which a head went
    recover_updates: CountOrNone = 0  # 0: training.updates
    recover_learning_rate: Annotated[float, Limits(at_least=0, at_most=10)] = 0.0  # peak, falls to 0; 0: training's
    roles: bool = True  # measure roles again at each point of learned, random and scratch choices
    metric: Literal["bleu", "loss"] = "bleu"  # "bleu" beside the loss, for translation
    score_sentences: CountOrNone = 500  # of the analysed ones; 0: all
    rank_sentences: CountOrNone = 400  # of the validation part, for greedy choices; 0: all
    role_sentences: CountOrNone = 1000  # of the analysed ones; 0: all
    save_every: CountOrNone = 250  # updates between checkpoints

    def __post_init__(self) -> None:
        check_settings(self, "pruning")
        one_of("pruning.greedy", self.greedy, GREEDY)
        if wrong := [k for k in (*self.keep, *self.subset) if k > 1 and k != int(k)]:
            raise UserError(
                f"pruning.keep and pruning.subset must be numbers of heads, or shares below 1. Got {wrong[0]}."
            )
        for name, points in (("scratch_points", self.scratch_points), ("recover_points", self.recover_points)):
            if wrong := [point for point in points if not 0 <= point < len(self.penalties)]:
                last = len(self.penalties) - 1
                raise UserError(f"pruning.{name} must lie in 0..{last}, one for each penalty. Got {wrong[0]}.")


@dataclass(frozen=True, kw_only=True, slots=True)
class ContextPlan:
    """How converged models are trained on with closed self-attention, beside the same with all of it open; off unless
    asked for.

    Closing at test time (the table `encoder_context` has it of every model) says what a model uses; what is still lost
    when it was trained on that way, only that context can give. A model is retrained once with all open and once for
    each of `kinds` that it has; each costs `updates` of training. Models that translate also do so, greedily.
    """

    on: bool = False
    objectives: Objectives = ("translation",)  # whose models are trained on, at every seed
    kinds: Annotated[tuple[Closed, ...], Limits(filled=True)] = ("encoder-self", "decoder-self")
    updates: Count = 500
    learning_rate: LearningRate = 5e-4  # at its peak; it rises over a tenth of the updates and falls to 0
    sentences: CountOrNone = 400  # of the analysed ones, whose loss is taken; 0: all
    bleu_sentences: CountOrNone = 100  # of the analysed ones, translated open and closed; 0: none
    save_every: CountOrNone = 250  # updates between checkpoints

    def __post_init__(self) -> None:
        check_settings(self, "context")


@dataclass(frozen=True, kw_only=True, slots=True)
class EnginePlan:
    """How the stages of a study are run, wherever they run."""

    threads: Threads = 1  # of each stage on a CPU: another number changes the last bits of what is trained
    # Stages at a time on one GPU: small models leave most of it idle. It changes no number.
    per_gpu: Count = field(default=1, metadata=LATER)

    def __post_init__(self) -> None:
        check_settings(self, "engine")
