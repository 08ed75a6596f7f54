"""Tasks of text generation, such as writing a summary, a question, a translation, or the answer of another task."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, final

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from infoflow._transformers import GenerationConfig, PreTrainedModel, PreTrainedTokenizerBase
from infoflow.architectures import Layout
from infoflow.corpus import Corpus, Sentence, Vocabulary
from infoflow.foundation import LATER, Count, UserError, Weight, check_settings
from infoflow.models import evaluating, pad_rows, without_remarks
from infoflow.objectives import (
    SENTENCE_FIELDS,
    UNSUPERVISED,
    Batch,
    Corrupted,
    Example,
    Family,
    Field,
    prefix_mask,
)
from infoflow.training import micro_batches

from ._choice_and_tagging import right_places
from ._generation_rows import (
    BEGINS,
    GenerationRows,
    GenerationSources,
    check_positions,
    has_encoder,
    positions,
    written_losses,
)
from ._task import AbstractTask, Predictions, Score, Shape, TaskData
from ._text_metrics import TextMetric, exact_text, text_scores


@final
@dataclass(frozen=True, kw_only=True, slots=True)
class Generation(AbstractTask):
    """The text to generate (`translation`, with alternatives in `references`) after each `text`.

    In a model with an encoder, the encoder reads the source and the decoder's loss is on the target. A single decoder
    reads source and target in one row, with the loss on the target; with `two_sided` the source has bidirectional
    attention, as in the training of a prefix language model ([@raffel2020exploring]).
    """

    name: ClassVar[str] = "generation"
    shape: ClassVar[Shape] = "generation"
    layout: ClassVar[Layout] = "encoder-decoder"
    family: ClassVar[Family] = "translate"
    head: ClassVar[str] = "AutoModelForSeq2SeqLM"
    """The class for models with an encoder; a single decoder uses AutoModelForCausalLM. Both keep their output head."""
    needs_translation: ClassVar[bool] = True
    term_weights: ClassVar[dict[str, float]] = {"generation": 1.0}
    fields: ClassVar[Mapping[str, Field]] = {
        **SENTENCE_FIELDS,
        BEGINS: Field(),
    }

    task: str
    labels: tuple[str, ...] = ()
    prefix: str = ""  # put before every text to name the task: "summarize: "
    max_target: Count = 64  # maximum number of target tokens, end included
    beams: Count = 1  # beams in generation; 1: greedy
    length_penalty: Weight = 1.0  # for beams: a text's log-probability is divided by its length to this power
    two_sided: bool = False  # for a single decoder: bidirectional attention on the source
    main: TextMetric = "rougeL"  # the metric for model selection
    # Whether the model reads the first target token without predicting it, as BERT's decoders do. `tune` sets it from
    # the model.
    begin_is_read: bool = field(default=False, metadata=LATER)

    def __post_init__(self) -> None:
        check_settings(self, self.name)

    def rows(
        self,
        corpus: Corpus,
        tokenizer: PreTrainedTokenizerBase,
        max_length: int,
        target_tokenizer: PreTrainedTokenizerBase | None = None,
    ) -> GenerationRows:
        """Sources and targets as token ids; row i is row i of the corpus.

        A single decoder needs `max_length` plus `max_target` positions. `target_tokenizer` is a separate tokenizer for
        targets, if the model has one.
        """
        return GenerationRows(corpus, tokenizer, target_tokenizer, self.prefix, max_length, self.max_target)

    def corrupt(self, example: Example, generator: np.random.Generator, vocabulary: Vocabulary) -> Corrupted:
        """Source and target, unchanged."""
        assert example.translation is not None
        arrays = {"input_ids": example.text, "labels": example.translation, **example.labels}
        return Corrupted(arrays=arrays, selected=np.zeros(len(example.text), dtype=bool))

    def counts(self, batch: Batch) -> dict[str, int]:
        """Number of target tokens with a loss."""
        read = int(batch[BEGINS].sum()) if self.begin_is_read else 0
        return {self.name: batch.supervised_tokens - read}

    def example_losses(
        self, module: PreTrainedModel, batch: Batch, label_smoothing: float = 0.0
    ) -> Float[Tensor, " example"]:
        """−log p of each whole target, in nats."""
        sources = GenerationSources(
            sources=batch.input_ids, real=batch.real, targets=batch.labels, begins=batch[BEGINS]
        )
        return written_losses(module, sources, self.two_sided, label_smoothing)

    def predict(
        self, module: PreTrainedModel, rows: GenerationRows, corpus: Corpus, vocabulary: Vocabulary, batch_tokens: int
    ) -> Predictions:
        """The generated texts; the `values` of a text are the geometric mean of its tokens' probabilities."""
        said, values = [""] * len(corpus), np.zeros(len(corpus))
        with evaluating(module):
            for piece, written, again in write(module, rows, self, batch_tokens):
                losses = written_losses(module, again, self.two_sided)
                for row, ids, loss in zip(piece.tolist(), written, losses.tolist(), strict=True):
                    said[row] = rows.side.tokenizer.decode(ids, skip_special_tokens=True).strip()
                    values[row] = np.exp(-loss / len(ids))
        return Predictions(said=tuple(said), wanted=tuple(right[0] for right in wanted_texts(corpus)), values=values)

    def scores(self, predictions: Predictions, corpus: Corpus, train: Corpus) -> list[Score]:
        """ROUGE, BLEU, chrF and exact match (see `text_scores`), `main` first."""
        found = text_scores(predictions.said, wanted_texts, corpus, train)
        return sorted(found, key=lambda score: score.metric != self.main)

    def right(self, predictions: Predictions, corpus: Corpus) -> Bool[np.ndarray, " example"]:
        """Which texts equal a reference, ignoring case and spacing."""
        pairs = zip(predictions.said, wanted_texts(corpus), strict=True)
        return np.array([exact_text(*each) == 1 for each in pairs], dtype=bool)


def wanted_texts(corpus: Corpus) -> list[list[str]]:
    """The references of each example, its translation first."""
    more = corpus.column("references") if "references" in corpus.columns else ((),) * len(corpus)
    return [[text, *(rest or ())] for text, rest in zip(corpus.column("translation"), more, strict=True)]


def write(
    module: PreTrainedModel, rows: GenerationRows, task: Generation, batch_tokens: int
) -> Iterator[tuple[np.ndarray, list[list[int]], GenerationSources]]:
    """The texts that `module`, in evaluation mode, generates for every source, in batches.

    Each batch has its rows, the tokens of each text after the start, up to and including the end if it was reached,
    and the sources with these texts as targets. An encoder's sources are padded. A single stack gets batches of sources
    of equal length, since left padding would shift positions in some families.
    """
    lengths = rows.source_lengths
    encoder, device = has_encoder(module), next(module.parameters()).device
    groups = [np.arange(len(lengths))] if encoder else [np.flatnonzero(lengths == each) for each in np.unique(lengths)]
    budget = max(batch_tokens // task.beams, 1)
    for piece in (piece for group in groups for piece in micro_batches(group, lengths, None, budget)):
        sources, mask = pad_rows([rows.source(int(row)).tolist() for row in piece], rows.pad)
        sources, mask = sources.to(device), mask.to(device)
        inputs: dict[str, Any] = {"input_ids": sources, "attention_mask": mask}
        if task.two_sided and not encoder:
            inputs["past_key_values"] = _seen_from_both_sides(module, sources, task.beams)
        read = 1 if encoder else sources.shape[1]
        with without_remarks():
            output = module.generate(**inputs, generation_config=_config(module, rows, task, read))  # type: ignore[operator]
        written = [_until(row[read:].tolist(), rows.side.end) for row in output]
        targets, _ = pad_rows(written, UNSUPERVISED)
        begins = torch.zeros(len(piece), dtype=torch.int64, device=device)
        yield (
            piece,
            written,
            GenerationSources(sources=sources, real=mask.bool(), targets=targets.to(device), begins=begins),
        )


def _config(module: Any, rows: GenerationRows, task: Generation, read: int) -> GenerationConfig:
    """Settings of `generate` if the writing stack has already read `read` tokens.

    A pretrained model's settings for its own task (such as longer summaries) are ignored. The last generated token is
    not read.
    """
    check_positions(module, read)
    limit = positions(module)
    most = task.max_target if limit is None else min(task.max_target, limit + 1 - read)
    start = getattr(module.config, "decoder_start_token_id", None)
    return GenerationConfig(
        do_sample=False,
        num_beams=task.beams,
        max_new_tokens=most,
        min_length=0,
        no_repeat_ngram_size=0,
        repetition_penalty=1.0,
        eos_token_id=rows.side.end,
        pad_token_id=rows.side.pad,
        **({"length_penalty": task.length_penalty, "early_stopping": False} if task.beams > 1 else {}),
        **({} if start is None else {"decoder_start_token_id": start}),
    )


def _seen_from_both_sides(module: Any, sources: Int[Tensor, "example token"], beams: int) -> Any:
    """Keys and values of all source tokens but the last, computed with bidirectional attention.

    `generate` reads the last token again, which comes after all others and attends to them in any case.
    """
    count, length = sources.shape
    prefix = torch.full((count,), length, device=sources.device)
    cache = module(input_ids=sources, attention_mask=prefix_mask(prefix, length), use_cache=True).past_key_values
    cache.crop(-1)
    if beams > 1:
        cache.batch_repeat_interleave(beams)
    return cache


def _until(ids: list[int], end: int) -> list[int]:
    return ids[: ids.index(end) + 1] if end in ids else ids


# Other tasks as text generation, with inputs and answers in words, for models that only generate text.

_POSSIBLE: tuple[Shape, ...] = ("classification", "regression", "span", "choice")
NO_ANSWER = "no answer"  # the target if a passage does not contain the answer


def as_text(data: TaskData) -> TaskData:
    """The task as generation: `text` is the input in words, `translation` the answer in words.

    | shape          | text                                               | to write                        |
    |----------------|----------------------------------------------------|---------------------------------|
    | classification | the text, or `first: … second: …`                  | the label                       |
    | regression     | likewise                                           | the number, to the nearest 0.2  |
    | choice         | `question: … choices: (1) … (2) … context: …`      | the right choice                |
    | span           | `question: … context: …`                           | the answer, or "no answer"      |

    `Generation.prefix` names the task, such as "sentiment: ". Models are selected by exact match.

    Raises:
        UserError: The task is tagging or has an unknown shape.

    Source: [@raffel2020exploring].
    """
    if data.shape == "generation":
        return data
    if data.shape not in _POSSIBLE:
        raise UserError(
            f"A task of the shape {data.shape} cannot be turned into text generation. Got {data.name}.\n"
            f"Possible shapes: {', '.join(_POSSIBLE)}. For tagging use a model with a token classification head."
        )
    parts = {part: _written(getattr(data, part), data.shape) for part in ("train", "dev", "test")}
    return replace(data, shape="generation", labels=(), options={"main": "exact_match"}, **parts)


def _written(corpus: Corpus, shape: Shape) -> Corpus:
    right = right_places(corpus).tolist() if shape == "choice" else [0] * len(corpus)
    written = [_in_words(sentence, shape, place) for sentence, place in zip(corpus, right, strict=True)]
    columns: dict[str, Any] = {
        "text": [text for text, _ in written],
        "translation": [answers[0] for _, answers in written],
        "references": [answers[1:] for _, answers in written],
    }
    frame = pd.DataFrame(columns)
    return Corpus.from_frame(frame, translation="translation", references="references", name=f"{corpus.name} as text")


def _in_words(sentence: Sentence, shape: Shape, right: int) -> tuple[str, list[str]]:
    """The input and the right answers of an example in words; `right` is the index of the right choice."""
    if shape == "span":
        text = f"question: {sentence.question} context: {sentence.text}"
        return text, list(dict.fromkeys(sentence.answers or [])) or [NO_ANSWER]
    if shape == "choice":
        choices = sentence.choices or []
        listed = " ".join(f"({number}) {choice}" for number, choice in enumerate(choices, start=1))
        return f"question: {sentence.question} choices: {listed} context: {sentence.text}", [choices[right]]
    text = sentence.text if sentence.second is None else f"first: {sentence.text} second: {sentence.second}"
    label = str(sentence.label)
    return text, [f"{round(float(label) * 5) / 5:.1f}" if shape == "regression" else label]
