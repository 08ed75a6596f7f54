"""What a study does: a plan of plain values, from a TOML file or from Python."""

import dataclasses
import tomllib
from dataclasses import dataclass, field, fields
from importlib import resources
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

from infoflow.corpus import SPLIT_RULES, SplitRule
from infoflow.dynamics import RecordConfig, Rule
from infoflow.foundation import UserError
from infoflow.objectives import OBJECTIVES, AbstractObjective, make_objective
from infoflow.pruning import GREEDY, KINDS
from infoflow.training import ModelConfig, TrainConfig

PRESETS = ("quick", "laptop", "paper", "replicate")
ALL_HEADS = "all"
"""In `PruningPlan.scopes`: the heads of every kind of attention."""
_COUNTS = (
    *("occurrences", "types", "clusterings", "distance_occurrences", "neighbour_occurrences", "neighbours"),
    *("frequency_occurrences", "lens_steps", "lens_tokens", "relevance_sentences", "importance_sentences"),
    *("ablation_sentences", "probe_sentences", "bleu_sentences", "beams", "tokens_per_batch"),
)
TOKEN_DROPOUT = "token-dropout"
"""Names the variant of an objective whose input tokens are partly replaced in training: `translation+token-dropout`."""


def _at_least(section: str, plan: Any, **least: int) -> None:
    for name, smallest in least.items():
        if (value := getattr(plan, name)) < smallest:
            raise UserError(f"{section}.{name} must be at least {smallest}. Got {value}.")


def _one_of(name: str, values: tuple[str, ...], known: tuple[str, ...]) -> None:
    if unknown := [value for value in values if value not in known]:
        raise UserError(f"{name} must be among {', '.join(known)}. Got {unknown[0]!r}.")


@dataclass(frozen=True, kw_only=True, slots=True)
class CorpusPlan:
    """The sentences of a study and how they are cut up."""

    name: str = "tatoeba-en-fr"  # anything that `load_corpus` takes; translation needs a parallel one
    text_column: str = ""  # of the sentences, where `name` and the parts below are tables or datasets
    translation_column: str = ""
    min_words: int = 1  # of the source sentence
    max_words: int = 24
    sentences: int = 0  # training sentences (pairs) at most; 0: all
    validation: float = 0.02  # share of distinct source sentences
    test: float = 0.10  # what models are scored and analysed on
    split: SplitRule = "near-duplicates"  # what parts do not share; "both-sides", "source": see `Corpus.split`
    validation_name: str = ""  # a corpus of its own instead of the share, where one is published; as `name`
    test_name: str = ""  # likewise; training sentences that are in either are left out
    transfer_name: str = ""  # a corpus of another domain, as `name`: do heads that matter here matter there?
    vocabulary: int = 4000  # subwords per language, special tokens included
    lowercase: bool = True

    def __post_init__(self) -> None:
        _one_of("corpus.split", (self.split,), SPLIT_RULES)


@dataclass(frozen=True, kw_only=True, slots=True)
class AnalysisPlan:
    """How the models of a study are scored and measured, on sentences they were not trained on."""

    tables: tuple[str, ...] = ()  # what to measure, by the names of tables; empty: all, "task_scores": only scores
    sentences: int = 0  # of the test part at most; 0: all
    occurrences: int = 1_000_000  # tokens that mutual information counts at most
    types: int = 1000  # most frequent tokens that mutual information looks at
    clusters: int = 0  # of states, for mutual information; 0: by the number of tokens, at most 500
    clusterings: int = 2  # with other rows and starts: intervals carry their spread
    distance_occurrences: int = 20_000  # sampled tokens for PWCCA
    neighbour_occurrences: int = 20_000
    neighbours: int = 50
    frequency_occurrences: int = 3000  # of each frequency bin, for change and influence by frequency
    lens_steps: int = 200  # updates of the tuned lens
    lens_tokens: int = 64  # tokens per update of the tuned lens
    relevance_sentences: int = 100  # whose relevance is traced to every head
    importance_sentences: int = 400  # whose loss is differentiated by every head's gate
    ablation_sentences: int = 48  # that are read again without each head; curves of removal take half
    probe_sentences: int = 1000  # with trees, to train and test the probes of attention
    bleu_sentences: int = 300
    beams: int = 5
    tokens_per_batch: int = 8192
    untrained: bool = True  # measure the initial weights of every seed too: the control

    def __post_init__(self) -> None:
        _at_least("analysis", self, sentences=0, clusters=0, **dict.fromkeys(_COUNTS, 1))


@dataclass(frozen=True, kw_only=True, slots=True)
class AlignmentPlan:
    """How each seed's masked LM is aligned to its translation encoder; a study without one of the two aligns nothing.

    The published learning rates (5e-5 and 3e-5) are for BERT and hundreds of thousands of sentences; the small models
    of a study move too little at them.
    """

    on: bool = True
    sentences: int = 4000  # of the training part, for the explicit alignment and each of its two trained controls
    pairs: int = 8000  # sentence pairs of the training part, for the implicit alignment; 0: none
    held_out: int = 1000  # sentences of the analysed part that all encoders are compared on
    learning_rate: float = 1e-3
    batch_sentences: int = 32
    save_every: int = 500  # updates between checkpoints

    def __post_init__(self) -> None:
        _at_least("alignment", self, sentences=2, pairs=0, held_out=1, batch_sentences=1, save_every=0)


@dataclass(frozen=True, kw_only=True, slots=True)
class DynamicsPlan:
    """How loss changes are allocated to parameters while the models of a study train; off unless asked for.

    A recording leaves the weights as they are, bit for bit. It costs about (tokens + held_out_tokens) / batch_tokens of
    the training once more, with `every` above 1 that much less.
    """

    on: bool = False
    rule: Rule = "trapezoid"
    splits: int = 1  # panels of the rule
    tolerance: float = 0.0  # above 0, in nats: Simpson's panels double while a chord's residual is above it
    max_splits: int = 32
    every: int = 1  # updates per chord; above 1 for sums only, not for counts of hurting steps
    tokens: int = 2048  # source tokens of training sentences that the loss is taken on
    held_out_tokens: int = 1024  # of validation sentences; 0: none
    parts: int = 4  # disjoint parts of these: intervals and reliability come from them
    windows: int = 200  # rows over time at most
    lags: int = 0  # most chords between a movement and the gradient it is compared with; 2 copies of the weights each

    def __post_init__(self) -> None:
        _at_least("dynamics", self, splits=1, every=1, tokens=1, held_out_tokens=0, parts=1, lags=0)
        self.record()

    def record(self) -> RecordConfig:
        """What the recorder is told."""
        shared = {one.name for one in fields(RecordConfig)} & {one.name for one in fields(self)}
        return RecordConfig(**{name: getattr(self, name) for name in shared})


@dataclass(frozen=True, kw_only=True, slots=True)
class PruningPlan:
    """How heads of a study's converged models are pruned; off unless asked for.

    A scope is a kind of attention ("encoder-self", "decoder-self", "decoder-cross") or "all": whose heads may go. A
    model is pruned in those scopes that it has. In numbers of heads, below 1 is a share of the scope's.

    Gates learn on from one penalty to the next, so penalties should rise; 0 is the control of whether gates decide. At
    width 128 on short sentences (250 updates each) 0.003 left 33 of 48 encoder heads, 0.01 left 16, and 0.03 left 6 at
    half a BLEU. More updates decide more gates.

    Each point costs `updates` of training where gates learn (the same again for each number of `subset`, twice with
    `straight_through`, a whole training for each point from scratch), and everywhere a reading of `score_sentences`,
    their translation by beam search unless `metric` is "loss", and for `roles` one of `role_sentences` with attention.
    """

    on: bool = False
    objectives: tuple[str, ...] = ("translation",)  # whose models are pruned, at every seed
    scopes: tuple[str, ...] = ("encoder-self", "all")
    penalties: tuple[float, ...] = (0.0, 0.003, 0.01, 0.03, 0.1, 0.3)  # times open heads, mean over attentions
    updates: int = 500  # at each penalty
    learning_rate: float = 2e-4  # constant
    gate_rate: float = 100.0  # multiple of it for the gates
    greedy: tuple[str, ...] = ("importance", "confidence", "relevance", "random")  # and "iterative" (importance)
    random_draws: int = 3
    keep: tuple[float, ...] = ()  # numbers of heads of the greedy choices; empty: as many as the gates left
    subset: tuple[float, ...] = ()  # numbers of heads that are learned as exactly so many
    straight_through: bool = False  # learn them also with gates that are 0 or 1 in every update
    scratch: bool = False  # train from the start, as long as the model, with the heads that a sweep's point left
    scratch_scopes: tuple[str, ...] = ()  # empty: all
    scratch_points: tuple[int, ...] = ()  # of the sweep, from 0; empty: all
    roles: bool = True  # measure roles again at each point of learned, random and scratch choices
    metric: Literal["bleu", "loss"] = "bleu"  # "bleu" beside the loss, for translation
    score_sentences: int = 500  # of the analysed ones; 0: all
    rank_sentences: int = 400  # of the validation part, for greedy choices; 0: all
    role_sentences: int = 1000  # of the analysed ones; 0: all
    save_every: int = 250  # updates between checkpoints

    def __post_init__(self) -> None:
        _at_least("pruning", self, updates=1, random_draws=0, score_sentences=0, rank_sentences=0, role_sentences=0)
        _at_least("pruning", self, save_every=0)
        _one_of("pruning.scopes", (*self.scopes, *self.scratch_scopes), (*KINDS, ALL_HEADS))
        _one_of("pruning.greedy", self.greedy, GREEDY)
        if not self.penalties or min(self.penalties) < 0:
            raise UserError(f"pruning.penalties must be one or more weights, 0 or larger. Got {list(self.penalties)}.")
        if min(self.learning_rate, self.gate_rate) <= 0:
            rates = f"{self.learning_rate} and {self.gate_rate}"
            raise UserError(f"pruning.learning_rate and pruning.gate_rate must be positive. Got {rates}.")
        if wrong := [k for k in (*self.keep, *self.subset) if k < 0 or (k > 1 and k != int(k))]:
            raise UserError(
                f"pruning.keep and pruning.subset must be numbers of heads, or shares below 1. Got {wrong[0]}."
            )
        if wrong := [point for point in self.scratch_points if not 0 <= point < len(self.penalties)]:
            last = len(self.penalties) - 1
            raise UserError(f"pruning.scratch_points must lie in 0..{last}, one for each penalty. Got {wrong[0]}.")


@dataclass(frozen=True, kw_only=True, slots=True)
class StudyPlan:
    """One architecture, one corpus, one budget; only the objective varies."""

    title: str = "How the objective shapes a Transformer"
    objectives: tuple[str, ...] = ("causal-lm", "masked-lm", "translation")
    seeds: tuple[int, ...] = (0,)  # initialisation, data order, noise; shared by all objectives
    match: str = "encoder"  # every stack has `model.layers` layers; "depth": single stacks have twice as many
    token_dropout: float = 0.1  # share of input tokens replaced in training of `NAME+token-dropout` (an ablation)
    corpus: CorpusPlan = field(default_factory=CorpusPlan)
    model: ModelConfig = field(default_factory=ModelConfig)
    training: TrainConfig = field(default_factory=TrainConfig)
    analysis: AnalysisPlan = field(default_factory=AnalysisPlan)
    alignment: AlignmentPlan = field(default_factory=AlignmentPlan)
    dynamics: DynamicsPlan = field(default_factory=DynamicsPlan)
    pruning: PruningPlan = field(default_factory=PruningPlan)

    def __post_init__(self) -> None:
        for name in self.objectives:
            self.objective(name)
        for name, values in (("objectives", self.objectives), ("seeds", self.seeds)):
            if not values or len(set(values)) < len(values):
                raise UserError(f"{name} must be a list of different values. Got {list(values)}.")
        if self.match not in ("encoder", "depth"):
            raise UserError(f'match must be "encoder" or "depth". Got {self.match!r}.')
        if self.pruning.on:
            _one_of("pruning.objectives", self.pruning.objectives, self.objectives)

    def objective(self, name: str) -> AbstractObjective:
        """The objective called `name`; `NAME+token-dropout` is its ablation, trained on partly replaced input.

        Raises:
            UserError: There is no such objective or variant.
        """
        base, plus, variant = name.partition("+")
        if not plus:
            return make_objective(base)
        if variant != TOKEN_DROPOUT:
            raise UserError(f"objectives: the only variant is NAME+{TOKEN_DROPOUT}. Got {name}.")
        if not 0 < self.token_dropout < 1:
            raise UserError(f"token_dropout must lie between 0 and 1. Got {self.token_dropout}.")
        make_objective(base)
        if "token_dropout" not in OBJECTIVES[base].__dataclass_fields__:  # type: ignore[attr-defined]
            raise UserError(f"{base} corrupts its input already: it has no variant {name}.")
        return make_objective(base, token_dropout=self.token_dropout)

    @classmethod
    def load(cls, source: str | Path) -> "StudyPlan":
        """The plan in a TOML file, or a preset: quick, laptop, paper, replicate.

        Raises:
            UserError: There is no such file or preset, it is no TOML, or a setting is unknown or of the wrong kind.
        """
        if str(source) in PRESETS:
            text = (resources.files(__package__) / "presets" / f"{source}.toml").read_text(encoding="utf-8")
        elif Path(source).is_file():
            text = _read(Path(source))
        else:
            raise UserError(f"No study plan {source}: neither a TOML file nor a preset ({', '.join(PRESETS)}).")
        try:
            values = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise UserError(f"{source} is not valid TOML: {error}.") from None
        return cls.from_json(values)

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> "StudyPlan":
        """The plan of plain values: what `to_json` wrote, or a parsed TOML file."""
        return _build(cls, values, "")

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise UserError(f"{path} is no UTF-8 text, so it is no TOML file. Save it as UTF-8.") from None


def _build(cls: type, values: dict[str, Any], path: str) -> Any:
    hints = get_type_hints(cls)
    known = [field.name for field in dataclasses.fields(cls)]
    arguments = {}
    for name, value in values.items():
        if name not in known:
            raise UserError(f"The plan has no setting {path}{name}. Known there: {', '.join(known)}.")
        arguments[name] = _convert(hints[name], value, f"{path}{name}")
    return cls(**arguments)


def _convert(hint: Any, value: Any, path: str) -> Any:
    if dataclasses.is_dataclass(hint):
        if not isinstance(value, dict):
            raise UserError(f"{path} must be a table of settings, written [{path}]. Got {value!r}.")
        return _build(hint, value, f"{path}.")  # type: ignore[arg-type]
    if get_origin(hint) is tuple:
        if not isinstance(value, list | tuple):
            raise UserError(f"{path} must be a list, written [...]. Got {value!r}.")
        item = get_args(hint)[0]
        return tuple(_convert(item, each, f"{path}[{index}]") for index, each in enumerate(value))
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    allowed = tuple(hint_ for hint_ in (get_args(hint) or (hint,)) if isinstance(hint_, type))
    choices = tuple(choice for choice in get_args(hint) if isinstance(choice, str))
    fits = value in choices if choices else isinstance(value, allowed) and not (bool not in allowed and value is True)
    if not fits:
        wanted = " or ".join(choices) if choices else " or ".join(kind.__name__ for kind in allowed)
        raise UserError(f"{path} must be {wanted}. Got {value!r}.")
    return value
