"""The sections of a study's plan: one class for each TOML table with settings of its own."""

from dataclasses import dataclass, field, fields
from typing import Annotated, Any, Literal

from infoflow.corpus import Lines, SplitRule
from infoflow.dynamics import RecordConfig, RecordSettings
from infoflow.flow import PassOptions
from infoflow.foundation import (
    LATER,
    Count,
    CountOrNone,
    File,
    LearningRate,
    Limits,
    RequiredFile,
    Several,
    Share,
    Threads,
    UserError,
    Weight,
    check_settings,
    named_fields,
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
Objectives = Annotated[tuple[str, ...], Limits(filled=True, distinct=True)]
Subwords = Annotated[int, Limits(at_least=6, at_most=10**6)]
Clusters = Annotated[int, Limits(at_least=0, at_most=65_535)]
Few = Annotated[int, Limits(at_least=1, at_most=1000)]
Bytes = Annotated[int, Limits(at_least=1, at_most=1 << 50)]
Points = Annotated[int, Limits(at_least=12, at_most=10**4)]


@dataclass(frozen=True, kw_only=True, slots=True)
class TextColumns:
    """Where a corpus stores its sentences."""

    text_column: str = ""  # column of the sentences, if the corpus and its further parts are tables or datasets
    translation_column: str = ""
    document_column: str = ""  # column of each sentence's document name, for objectives that read documents
    documents: bool = False  # text files separate documents by blank lines; CoNLL-U begins each with # newdoc


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
    test_name: File = ""  # likewise; training sentences that occur in either are left out
    transfer_name: File = ""  # a corpus of another domain, as `name`: do the same heads matter there?
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
    clusters: Clusters = 0  # clusters, for mutual information; 0: by number of tokens, at most 500
    clusterings: Few = 2  # repetitions with other rows and starts: intervals include their spread
    distance_occurrences: Count = 20_000  # sampled tokens for PWCCA
    neighbour_occurrences: Count = 20_000
    neighbours: Count = 50
    frequency_occurrences: Count = 3000  # tokens of each frequency bin, for change and influence by frequency
    lens_steps: Count = 200  # updates of the tuned lens
    lens_tokens: Count = 64  # tokens per update of the tuned lens
    relevance_sentences: Count = 100  # sentences whose relevance is traced to every head
    importance_sentences: Count = 400  # sentences whose loss is differentiated by every head's gate
    ablation_sentences: Count = 48  # sentences that are read again without each head; curves of removal use half
    context_sentences: Count = field(default=400, metadata=LATER)  # read again with blocks' attention closed
    probe_sentences: Several = 1000  # sentences with trees that train and test the probes of attention
    map_points: Points = field(default=300, metadata=LATER)  # maximum tokens of each token map
    bleu_sentences: Count = 300
    beams: Few = 5
    tokens_per_batch: Annotated[int, Limits(at_least=1, at_most=10**8)] = 8192
    sample_bytes: Bytes = field(default=1 << 30, metadata=LATER)  # of sampled tokens' states on disk, per stack
    attention_bytes: Bytes = field(default=1 << 28, metadata=LATER)  # attention weights held at a time
    untrained: bool = True  # also measure the initial weights of every seed: the control

    def __post_init__(self) -> None:
        check_settings(self, "analysis")
        if self.clusters == 1:
            raise UserError("analysis.clusters must be at least 2, or 0 to choose it by the number of tokens. Got 1.")

    @property
    def budget(self) -> list[int]:
        """Settings that determine sample sizes, for keys; empty at the default, as in versions without the setting."""
        return [self.sample_bytes] if "sample_bytes" in named_fields(self) else []

    def passes(self, **others: Any) -> PassOptions:
        """How sentences are run through models; `others` are options that the plan does not set."""
        shared = {one.name for one in fields(PassOptions)} & {one.name for one in fields(self)}
        return PassOptions(**{name: getattr(self, name) for name in shared}, **others)


@dataclass(frozen=True, kw_only=True, slots=True)
class AlignmentPlan:
    """How each seed's masked LM is aligned to its translation encoder; studies without both models skip it.

    The published learning rates (5e-5 and 3e-5) are meant for BERT and hundreds of thousands of sentences; they change
    the small models of a study too little.
    """

    on: bool = True
    sentences: Several = 4000  # of the training part, for the explicit alignment and each of its two trained controls
    pairs: CountOrNone = 8000  # sentence pairs of the training part, for the implicit alignment; 0: none
    held_out: Count = 1000  # sentences of the analysed part on which all encoders are compared
    learning_rate: LearningRate = 1e-3
    batch_sentences: Count = 32
    save_every: CountOrNone = 500  # updates between checkpoints

    def __post_init__(self) -> None:
        check_settings(self, "alignment")


@dataclass(frozen=True, kw_only=True, slots=True)
class DynamicsPlan(RecordSettings):
    """How loss changes are allocated to parameters while the models of a study train; disabled by default.

    A recording leaves the weights bit for bit unchanged. It costs about (tokens + held_out_tokens) / batch_tokens of
    the training again, and proportionally less with `every` above 1.
    """

    on: bool = False
    tokens: Count = 2048  # source tokens of training sentences on which the loss is computed
    held_out_tokens: CountOrNone = 1024  # of validation sentences; 0: none
    parts: Few = 4  # disjoint parts of these, for intervals and reliability

    def record(self) -> RecordConfig:
        """The settings of the recorder."""
        return RecordConfig(**{one.name: getattr(self, one.name) for one in fields(RecordSettings)})


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckpointsPlan:
    """Which updates of every training are kept and what is measured at them; none without a schedule.

    Keeping them leaves the training bit for bit unchanged; each takes 4 bytes per parameter.
    """

    schedule: str = ""  # log:K, linear:K, every:M, powers, 0,10,500, joined by +; "default": log:16+linear:8; "": none
    dtype: Literal["float32", "bfloat16"] = "float32"  # of the kept weights; the first and the last stay float32
    budget: Annotated[float, Limits(above=0, at_most=1e6)] = 4.0  # maximum GB for all checkpoints of a study
    light: tuple[str, ...] = ()  # tables at every checkpoint; empty: those that are cheap and show when things change
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
        """The kept updates of a training, including 0 and the last; empty if none are kept.

        Raises:
            UserError: The schedule cannot be read, or names an update beyond the training.
        """
        if not self.on:
            return []
        words = DEFAULT_SCHEDULE if self.schedule == "default" else self.schedule
        return checkpoint_steps(words, training.updates, min(training.warmup_updates, training.updates))


@dataclass(frozen=True, kw_only=True, slots=True)
class PruningPlan:
    """How heads of a study's converged models are pruned; disabled by default.

    A scope is a kind of attention ("encoder-self", "decoder-self", "decoder-cross") or "all", and limits which heads
    may be removed. A model is pruned in the scopes that it has. Numbers of heads below 1 are shares of the scope's
    heads.

    Gates continue training from one penalty to the next, so penalties should rise; 0 is the control for whether gates
    decide. At width 128 on short sentences (250 updates each) 0.003 left 33 of 48 encoder heads, 0.01 left 16, and 0.03
    left 6 at a loss of half a BLEU. More updates let more gates decide.

    Each sweep step costs `updates` of training if gates are trained (the same again for each number of `subset`, twice
    that with `straight_through`; a whole training for each step from scratch; `recover_updates` twice for each step
    that recovers, and once more for all heads). Every step also reads `score_sentences`, translates them by beam search
    unless `metric` is "loss", and with `roles` reads `role_sentences` with attention.
    """

    on: bool = False
    objectives: Objectives = ("translation",)  # objectives whose models are pruned, at every seed
    scopes: Annotated[tuple[Scope, ...], Limits(filled=True)] = ("encoder-self", "all")
    penalties: Penalties = (0.0, 0.003, 0.01, 0.03, 0.1, 0.3)  # multiply the number of open heads, mean over attentions
    updates: Count = 500  # at each penalty
    learning_rate: LearningRate = 2e-4  # constant
    gate_rate: Annotated[float, Limits(above=0, at_most=1e6)] = 100.0  # multiplies the learning rate of the gates
    greedy: tuple[str, ...] = ("importance", "confidence", "relevance", "random")  # and "iterative" (importance)
    random_draws: Annotated[int, Limits(at_least=0, at_most=1000)] = 3
    keep: tuple[Heads, ...] = ()  # numbers of heads of the greedy choices; empty: as many as the gates kept
    subset: tuple[Heads, ...] = ()  # numbers of heads that are learned exactly
    straight_through: bool = False  # also learn them with gates that are 0 or 1 in every update
    scratch: bool = False  # train from scratch, as long as the model, with the heads of a sweep step
    scratch_scopes: tuple[Scope, ...] = ()  # empty: all
    scratch_points: tuple[CountOrNone, ...] = ()  # sweep steps, from 0; empty: all
    recover: bool = False  # train the heads of a sweep step further; controls: as many random heads, and all heads
    recover_points: tuple[CountOrNone, ...] = ()  # sweep steps, from 0; empty: all that removed a head
    recover_updates: CountOrNone = 0  # 0: training.updates
    recover_learning_rate: Annotated[float, Limits(at_least=0, at_most=10)] = 0.0  # peak; 0: that of training
    roles: bool = True  # measure roles again at each step of learned, random and scratch choices
    metric: Literal["bleu", "loss"] = "bleu"  # "bleu" in addition to the loss, for translation
    score_sentences: CountOrNone = 500  # of the analysed sentences; 0: all
    rank_sentences: CountOrNone = 400  # of the validation part, for greedy choices; 0: all
    role_sentences: CountOrNone = 1000  # of the analysed sentences; 0: all
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
    """How converged models are retrained with closed self-attention, with a fully open control; disabled by default.

    Closing attention at test time (the table `encoder_context`, for every model) shows what a model uses; the loss that
    remains after retraining without a context is what only that context provides. A model is retrained once fully open
    and once for each of `kinds` that it has; each costs `updates` of training. Models that translate are also scored on
    greedy translations.
    """

    on: bool = False
    objectives: Objectives = ("translation",)  # objectives whose models are retrained, at every seed
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

    threads: Threads = 1  # of each stage on a CPU: another number changes the last bits of trained weights
    # Concurrent stages on one GPU: small models leave most of it idle. No result depends on it.
    per_gpu: Count = field(default=1, metadata=LATER)

    def __post_init__(self) -> None:
        check_settings(self, "engine")
