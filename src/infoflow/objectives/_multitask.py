"""T5's multi-task training: one encoder-decoder learns several text-to-text tasks, each named by its prefix."""

from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, final

import numpy as np
from jaxtyping import Float

from infoflow.corpus import Vocabulary
from infoflow.foundation import Count, CountOrNone, DistinctNames, Limits, UserError, as_written, one_of

from . import _text_to_text as t5
from ._batch import Corrupted, Example
from ._encoder_decoder import AbstractEncoderDecoder, Bart, Translation
from ._objective import BLEU, LOSS, AbstractObjective, Family, Metric, Writes

_TASKS: dict[str, AbstractObjective] = {
    cls.name: cls()
    for cls in (
        *(Translation, t5.SpanCorruption, t5.ReplaceSpans, t5.DropTokens, t5.DenoiseFull, t5.DenoiseMask),
        *(t5.Deshuffling, t5.PrefixLM, t5.Seq2SeqLM, Bart),
    )
}
Temperature = Annotated[float, Limits(at_least=1, at_most=1000)]


def mixture_rates(
    sizes: Float[np.ndarray, " task"], limit: float = 0, temperature: float = 1.0
) -> Float[np.ndarray, " task"]:
    r"""Share of each task in a mixture, which grows with its number of examples up to a limit.

    $$ r_m = \frac{\min(e_m, K)^{1/T}}{\sum_n \min(e_n, K)^{1/T}} $$

    | symbol  | here          | space                                            |
    |---------|---------------|--------------------------------------------------|
    | $e_m$   | `sizes`       | > 0, examples of a task                          |
    | $K$     | `limit`       | > 0; 0: no limit                                 |
    | $T$     | `temperature` | >= 1; 1: proportional to examples; infinite: equal |

    Source: [@raffel2020exploring], section 3.5.2.

    >>> mixture_rates(np.array([900.0, 100.0]), limit=300)
    array([0.75, 0.25])
    """
    limited = np.minimum(sizes, limit) if limit else sizes
    scaled = (limited / limited.max()) ** (1 / temperature)
    return scaled / scaled.sum()


@final
@dataclass(frozen=True, kw_only=True, slots=True)
class MultiTask(AbstractEncoderDecoder):
    """Several text-to-text objectives in one model; the encoder reads the prefix of a text's task before the text.

    The same sentences serve all tasks. For each sentence and epoch, one task is drawn with the probabilities `rates`,
    and makes input and target as if it were the only task. The loss is the mean over all target tokens, whatever their
    task. Texts and translations must share one vocabulary. Source: [@raffel2020exploring].
    """

    name: ClassVar[str] = "multitask"
    family: ClassVar[Family] = "reconstruct"
    needs_translation: ClassVar[bool] = True
    one_vocabulary: ClassVar[bool] = True
    writes: ClassVar[Writes] = "part"
    metrics: ClassVar[tuple[Metric, ...]] = (LOSS, BLEU)

    tasks: DistinctNames = ("translation", "span-corruption")  # objectives that turn a text into a text
    prefixes: tuple[str, ...] = ("translate English to French: ", "")  # before the text of each task
    sizes: tuple[Count, ...] = ()  # examples of each task, which set its share; empty: all tasks are equal
    limit: CountOrNone = 0  # size above which a task's share stops growing (K in T5); 0: none
    temperature: Temperature = 1.0  # 1: shares are proportional to the limited sizes; higher: more equal

    def __post_init__(self) -> None:
        one_of("multitask.tasks", self.tasks, tuple(_TASKS))
        for setting, values in (("prefixes", self.prefixes), ("sizes", self.sizes)):
            if len(values) != len(self.tasks) and (values or setting == "prefixes"):
                raise UserError(
                    f"multitask.{setting} must have one value for each of the {len(self.tasks)} tasks. "
                    f"Got {as_written(values)}."
                )

    @property
    def rates(self) -> Float[np.ndarray, " task"]:
        """Share of each task (see `mixture_rates`)."""
        sizes = np.array(self.sizes or np.ones(len(self.tasks)), dtype=float)
        return mixture_rates(sizes, self.limit if self.sizes else 0, self.temperature)

    @property
    def parts(self) -> "dict[str, AbstractObjective]":
        pairs = zip(self.tasks, self.prefixes, strict=True)
        return {task: replace(self, tasks=(task,), prefixes=(prefix,), sizes=()) for task, prefix in pairs}

    @property
    def translation_prefix(self) -> str | None:
        return dict(zip(self.tasks, self.prefixes, strict=True)).get(Translation.name)

    @property
    def predicted_share(self) -> float:
        return float(self.rates @ [_TASKS[task].predicted_share for task in self.tasks])

    @property
    def needs_mask(self) -> bool:
        return any(_TASKS[task].needs_mask for task in self.tasks)

    def num_sentinels(self, longest: int) -> int:
        return max(_TASKS[task].num_sentinels(longest) for task in self.tasks)

    def added_tokens(self, vocabulary: Vocabulary) -> int:
        return max(len(_ids(prefix, vocabulary)) for prefix in self.prefixes)

    def corrupt(self, example: Example, generator: np.random.Generator, vocabulary: Vocabulary) -> Corrupted:
        """Draw a task, unless there is only one, and apply its noise; the prefix follows [CLS]."""
        chosen = (
            0
            if len(self.tasks) == 1
            else int(np.searchsorted(self.rates.cumsum()[:-1], generator.random(), side="right"))
        )
        made = _TASKS[self.tasks[chosen]].corrupt(example, generator, vocabulary)
        prefix = _ids(self.prefixes[chosen], vocabulary)
        inputs = np.concatenate([made.input_ids[:1], prefix, made.input_ids[1:]])
        selected = np.concatenate([made.selected[:1], np.zeros(len(prefix), dtype=bool), made.selected[1:]])
        return Corrupted(arrays={**made.arrays, "input_ids": inputs}, selected=selected)


def _ids(prefix: str, vocabulary: Vocabulary) -> np.ndarray:
    try:
        return vocabulary.ids[prefix] if prefix else np.empty(0, dtype=np.int64)
    except KeyError:
        raise UserError(
            f"multitask needs the tokens of {as_written(prefix)}. Got a vocabulary without them.\n"
            "Make it with Vocabulary.from_tokenizer, or give its ids."
        ) from None
