"""The interface of measures, and the isolation of failures: a measure that fails loses only its own table."""

import copy
import traceback
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np
import pandas as pd
import torch

from infoflow.foundation import UserError, as_written, current_display, described_in_file, error_text
from infoflow.models import Model
from infoflow.objectives import AbstractObjective
from infoflow.results import TableSchema

from ._reader import Reader
from ._sample import Activations, Need, Regime, SampleRequest, TokenSample


@dataclass(frozen=True, kw_only=True, slots=True)
class PassOptions:
    """How a corpus is run through a model.

    Only `seed`, `max_length`, `corruption` and the options of the sample affect results.
    """

    seed: int = 0
    tokens_per_batch: int = 4096  # maximum number of padded tokens; wide models read smaller batches on a CPU
    max_length: int = 512  # longer sentences are cut and counted
    attention_bytes: int = 1 << 28  # for attention weights of all layers and heads held at a time
    sample_bytes: int = 1 << 30  # for the token sample's states on disk, per stack and regime
    white_space_words: bool = False  # use `running_words` with every tokenizer, to compare tokenizers
    decoder_states: bool = True  # also sample an encoder–decoder's decoder if the corpus has translations
    corruption: AbstractObjective | None = None  # how a masked LM's text was corrupted in training; None: `MaskedLM()`
    where: tuple[str, str] | None = None  # count only tokens whose word has this tag and value: ("role", "user")

    @property
    def key(self) -> dict[str, Any]:
        """Options that affect results, for content keys."""
        later = {"corruption", "where"}  # only in the key if they are set
        plain = {field.name: getattr(self, field.name) for field in fields(self) if field.name not in later}
        plain |= {} if self.where is None else {"where": self.where}
        return plain if self.corruption is None else plain | {"corruption": [self.corruption.name, self.corruption]}


_VERSION = 3  # increase when all tables change, through the selection of sentences and tokens, or the intervals


class NothingToRead(UserError):
    """The corpus has nothing for a measure of this model; the measure is skipped with this note if others remain."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a user's own measure comes from."""

    file: Path | None  # None: passed as an object
    digest: str  # digest of the code; if it changes, results are computed again


class AbstractMeasure(ABC):
    """Base class of all measures. Subclass `Measure` (streaming), `SampleMeasure` or `PairMeasure`.

    Public attributes are settings and hold plain values, since they are part of the results' keys; state is private.
    """

    table: ClassVar[TableSchema]
    """The table it writes; rows of measures that share a table are concatenated."""
    regime: Regime = "clean"
    """`"training"`: the input is corrupted as in the model's objective (masked LM), in a second pass."""
    _origin: Origin | None = None

    @property
    def origin(self) -> Origin | None:
        """The file of a user's own measure that was passed to `analyze`; None for the package's measures."""
        return self._origin

    def from_origin(self, origin: Origin) -> "AbstractMeasure":
        """A copy with that origin."""
        marked = copy.copy(self)
        marked._origin = origin
        return marked

    @property
    def name(self) -> str:
        return self.table.name

    by_default: ClassVar[bool] = False
    """Whether a study runs this measure of a subject on every model; otherwise only if a user names its table."""

    @classmethod
    def planned(cls, plan: Any) -> "AbstractMeasure":
        """The measure with the settings of a plan's section `analysis`."""
        return cls()

    static: ClassVar[bool] = False
    """Whether it applies to models without layers, with one vector per token."""

    by_token: ClassVar[bool] = False
    """Whether it counts tokens, queries or predictions one by one, so that it can be restricted to tokens with a tag
    (`PassOptions.where`): a prediction has the tag of the predicted token."""

    def refusal(self, model: Model) -> str | None:
        """Why this measure does not apply to `model` (it is then skipped with that note), or None."""
        return None

    def unless_named(self, width: int) -> str | None:
        """Why `infoflow analyze` computes the table of a model of this width only if `--only` names it, or None."""
        return None

    def why_not(self, model: Model) -> str | None:
        """`refusal`, or what the model's anatomy lacks for this measure."""
        layers = any(stack.layers for stack in model.anatomy.stacks)
        lacking = not self.static if not layers else self.of_heads
        return (model.anatomy.lacks() if lacking else None) or self.refusal(model)

    @property
    def of_heads(self) -> bool:
        """Whether it reads attention: by default if its table has a row for each head or kind of attention."""
        return bool({"head", "head_a", "kind"} & set(self.table.column_names))


class Measure(AbstractMeasure):
    """A streaming measure, which sees every batch once and keeps sums, so its memory does not grow with the corpus.

    Keep sums per bootstrap block (leading axis 64): `result` then has replicates at no additional cost.
    """

    needs: frozenset[Need] = frozenset()
    """Activations that it reads; only these are computed."""
    top_types: int | None = None
    """Regime "training" draws the replacements from at least this many of the most frequent types."""

    only_replaced: bool = False
    """Whether it reads, in the regime "training", only tokens to predict whose input is another token of text."""

    def prepare(self, reader: Reader) -> None:
        """Prepare from the corpus, its annotation and the tokenizers; called once before the pass."""

    def draws(self, reader: Reader) -> int:
        """Number of passes of training noise over the corpus; only called in the regime "training"."""
        return 1

    def begin(self, reader: Reader, options: PassOptions) -> None:
        """Run the model before the pass to fit something.

        It is called once before the first batch of each process or shard, but not when shards are merged.
        """

    @abstractmethod
    def update(self, activations: Activations) -> None:
        """Add one batch."""

    @abstractmethod
    def merge(self, other: Any) -> None:
        """Add what another instance of the same class (another shard or process) saw."""

    @abstractmethod
    def state_dict(self) -> dict[str, np.ndarray]:
        """The sums, as plain arrays."""

    @abstractmethod
    def load_state_dict(self, state: dict[str, np.ndarray]) -> None:
        """Replace the sums by those in `state`."""

    @abstractmethod
    def result(self) -> pd.DataFrame:
        """The table."""


@runtime_checkable
class AttentionByBlocks(Protocol):
    """A streaming measure of sums over queries, which reads attention layer by layer within the forward pass.

    `update_block` gets each layer's attention, and `update` then gets the batch without attention. A text whose
    attention would be far larger than `PassOptions.attention_bytes` is read a few queries at a time; other attention
    measures do not see it.
    """

    def update_block(self, activations: Activations, layer: int) -> None:
        """Add one layer's attention or a block of its queries (`activations.queries`).

        `attention` and `visible` have one key with one tensor.
        """


class SampleMeasure(AbstractMeasure):
    """A measure of individual states, from the token sample that all such measures share."""

    by_token = True
    request: SampleRequest

    @abstractmethod
    def compute(self, sample: TokenSample) -> pd.DataFrame:
        """The table's rows for one stack's sample; the runner adds nothing to them."""


class Intervention(AbstractMeasure):
    """A measure that runs a modified or extended model itself, after the pass.

    Under `torchrun` every process runs it in full; with shards it runs when they are merged.
    """

    whole_attention: ClassVar[bool] = False
    """Whether it holds the attention of a whole text, so that it leaves out texts whose attention is far larger than
    `PassOptions.attention_bytes`."""

    @abstractmethod
    def run(self, reader: Reader, options: PassOptions) -> pd.DataFrame:
        """The table's rows for the model and corpus of `reader`."""


class PairMeasure(AbstractMeasure):
    """A measure of two models on the same words."""

    by_token = True
    request: SampleRequest
    words: str = "token"
    """The unit of a row.

    `"token"`: tokens if both models read the same ones, else whole words with the state of their last token. `"mean"`,
    `"first"`, `"last"`: always whole words, with the mean, first or last state of their tokens.
    """

    @abstractmethod
    def compute(self, first: TokenSample, second: TokenSample) -> pd.DataFrame:
        """The table's rows for two samples of the same occurrences in the same order."""


def check_measures(measures: Any) -> None:
    """Refuse anything except measures."""
    if isinstance(measures, str) or not isinstance(measures, Sequence):
        strange = [measures]
    else:
        strange = [one for one in measures if not isinstance(one, AbstractMeasure)]
    if not strange:
        return
    odd = strange[0]
    got = f"the class {odd.__name__}" if isinstance(odd, type) else as_written(odd)
    raise UserError(
        f"measures must be objects, such as infoflow.heads.Confidence(). Got {got}.\n"
        "Write for example measure(model, corpus, [infoflow.heads.Confidence()]); tables are named in "
        'infoflow.analyze("MODEL", corpus="FILE", only=["head_confidence"]), and on the command line after --only.'
    )


def describe_measure(measure: AbstractMeasure) -> dict[str, Any]:
    """A measure's settings as plain values, for content keys: if they change, the results are computed again."""
    settings = {name: value for name, value in vars(measure).items() if not name.startswith("_") and name != "request"}
    if odd := [name for name, value in settings.items() if not isinstance(value, str | int | float | tuple | None)]:
        raise TypeError(f"{type(measure).__name__}.{odd[0]} is not a plain value: make it one, or private.")
    version = [_VERSION, measure.table.version]
    code = {"code": [measure.origin.digest, measure.name]} if measure.origin else {}
    return {"measure": type(measure).__qualname__, "version": version, **code, **settings}


# Exception types differ between libraries (Arrow, safetensors, torch), and some errors are known only by their text.
_OF_THE_MACHINE = (
    "out of memory",
    "can't allocate memory",
    "Cannot allocate memory",
    "can't start new thread",
    "No space left on device",
    "Disk quota exceeded",
)


@runtime_checkable
class Named(Protocol):
    """The producer of a table: a measure, or another object with the table's name."""

    @property
    def name(self) -> str: ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Failure:
    """Why a table is missing."""

    table: str
    model: str
    reason: str  # for the user; for an unexpected exception its type and message
    traceback: str = ""  # for an unexpected exception: a fault of infoflow or of the user's own code


class Failures:
    """Failures of measures on one model, by table; with `keep_going` they are reported, otherwise raised."""

    def __init__(self, model: str, keep_going: bool) -> None:
        self.keep_going = keep_going
        self._model = model
        self._found: dict[str, Failure] = {}

    def __contains__(self, measure: Named) -> bool:
        """Also true if another measure of its table failed, since the table would be incomplete."""
        return measure.name in self._found

    @contextmanager
    def of(self, measure: Named) -> Iterator[None]:
        """Report and record errors of `measure`, except interruptions and a lack of memory or disk space."""
        origin = measure.origin if isinstance(measure, AbstractMeasure) else None
        try:
            yield
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt) or _is_of_the_machine(error, origin):
                raise
            # The user's own code may also exit, which must not happen silently.
            if not isinstance(error, Exception) and origin is None:
                raise
            failure = _failure(self._model, measure, error, origin)
            if not self.keep_going:
                if origin is None or isinstance(error, UserError):
                    raise
                raise UserError(f"{measure.name} of {self._model} failed: {failure.reason}") from error
            self._found[measure.name] = failure
            current_display().warn(f"{measure.name} of {self._model} failed and is left out: {failure.reason}")

    def add(self, others: Sequence["Failures"]) -> None:
        """Add failures from other processes."""
        for other in others:
            self._found |= other._found

    def listed(self) -> tuple[Failure, ...]:
        """All failures, by table."""
        return tuple(self._found[table] for table in sorted(self._found))


def _failure(model: str, measure: Named, error: BaseException, origin: Origin | None) -> Failure:
    if isinstance(error, UserError):
        return Failure(table=measure.name, model=model, reason=str(error))
    if origin:
        where = f"{origin.file.name}, " if origin.file else ""
        message = described_in_file(error, origin.file) if origin.file else error_text(error)
        reason = f"its own code raised an error: {where}{message}. Correct it."
        return Failure(table=measure.name, model=model, reason=reason, traceback=_traced(error))
    reason = f"this is a fault of infoflow, not of the model or the corpus. {type(error).__name__}: {error}"
    return Failure(table=measure.name, model=model, reason=reason, traceback=_traced(error))


def _traced(error: BaseException) -> str:
    return "".join(traceback.format_exception(error))


def _is_of_the_machine(error: BaseException, origin: Origin | None) -> bool:
    """Whether the machine is at fault (memory, disk, permission), so that other measures would fail too.

    A file that user code fails to find does not count.
    """
    if isinstance(error, MemoryError | torch.OutOfMemoryError) or (isinstance(error, OSError) and origin is None):
        return True
    return any(sign in str(error) for sign in _OF_THE_MACHINE)
