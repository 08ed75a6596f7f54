"""The sections of a study's plan: one class for each TOML table with settings of its own."""

from dataclasses import dataclass, field, fields
from typing import Annotated, Any, Literal

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
    check_settings,
    named_fields,
)
from infoflow.training import DEFAULT_SCHEDULE, TrainConfig, checkpoint_steps

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
    usable_occurrences: Fitted = field(default=40_000, metadata=LATER)  # sampled tokens for usable information
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
class ContextPlan:
    """How converged models are retrained with closed self-attention, with a fully open control; disabled by default.

    Closing attention at test time (the table `encoder_context`, for every model) shows what a model uses; the loss that
    remains after retraining without a context is what only that context provides. A model is retrained once fully open
    and once for each of `kinds` that it has; each costs `updates` of training. Models that translate are also scored on
    greedy translations.
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

    threads: Threads = 1  # of each stage on a CPU: another number changes the last bits of trained weights
    # Concurrent stages on one GPU: small models leave most of it idle. No result depends on it.
    per_gpu: Count = field(default=1, metadata=LATER)

    def __post_init__(self) -> None:
        check_settings(self, "engine")
