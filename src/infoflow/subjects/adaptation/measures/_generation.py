"""Text generation: a summary, a question, a translation, the text of some facts, the answer of another task."""

from collections.abc import Callable, Mapping
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
from infoflow.foundation import LATER, Count, UserError, Weight
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
from ._task import AbstractTask, Predictions, Score, Shape, TaskData, check_options
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
    """For a single decoder, AutoModelForCausalLM is used. Both keep their pretrained head."""
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
        check_options(self)

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
        """The generated texts; `values` are the geometric mean of the probabilities of their tokens."""
        search = Search(
            beams=self.beams, length_penalty=self.length_penalty, most=self.max_target, two_sided=self.two_sided
        )
        said, values = [""] * len(corpus), np.zeros(len(corpus))
        with evaluating(module):
            for written in write(module, rows, search, batch_tokens):
                losses = written_losses(module, _again(written), self.two_sided)
                for row, ids, loss in zip(written.rows.tolist(), written.ids, losses.tolist(), strict=True):
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


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Written:
    """The texts that a model generated for some sources of a part."""

    rows: np.ndarray  # int64 (example,)
    sources: Int[Tensor, "example token"]
    mask: Int[Tensor, "example token"]
    ids: list[list[int]]  # for each example the tokens after the start, up to and including the end if it was reached


def _again(written: Written) -> GenerationSources:
    """The generated texts as targets."""
    longest = max(map(len, written.ids))
    targets = torch.full((len(written.ids), longest), UNSUPERVISED, device=written.sources.device)
    for row, ids in enumerate(written.ids):
        targets[row, : len(ids)] = torch.tensor(ids, device=targets.device)
    return GenerationSources(
        sources=written.sources, real=written.mask.bool(), targets=targets, begins=torch.zeros_like(targets[:, 0])
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Search:
    """Settings of the search."""

    beams: int  # number of beams; 1: greedy
    length_penalty: float
    """Length penalty for beams: a text's log-probability is divided by its length to this power."""
    most: int  # maximum number of tokens of a text, its end included
    two_sided: bool  # whether a single stack reads the source bidirectionally


def write(module: PreTrainedModel, rows: GenerationRows, search: Search, batch_tokens: int) -> list[Written]:
    """The texts that `module`, in evaluation mode, generates for every source.

    An encoder's sources are padded. A single stack gets batches of sources of equal length, since left padding would
    shift positions in some families.
    """
    lengths = rows.source_lengths
    encoder, device = has_encoder(module), next(module.parameters()).device
    groups = [np.arange(len(lengths))] if encoder else [np.flatnonzero(lengths == each) for each in np.unique(lengths)]
    budget = max(batch_tokens // search.beams, 1)
    found = []
    for piece in (piece for group in groups for piece in micro_batches(group, lengths, None, budget)):
        sources, mask = pad_rows([rows.source(int(row)).tolist() for row in piece], rows.pad)
        sources, mask = sources.to(device), mask.to(device)
        inputs: dict[str, Any] = {"input_ids": sources, "attention_mask": mask}
        if search.two_sided and not encoder:
            inputs["past_key_values"] = _seen_from_both_sides(module, sources, search.beams)
        read = 1 if encoder else sources.shape[1]
        with without_remarks():
            output = module.generate(**inputs, generation_config=_config(module, rows, search, read))  # type: ignore[operator]
        ids = [_until(row[read:].tolist(), rows.side.end) for row in output]
        found.append(Written(rows=piece, sources=sources, mask=mask, ids=ids))
    return found


def _config(module: Any, rows: GenerationRows, search: Search, read: int) -> GenerationConfig:
    """Settings of `generate` if the writing stack has already read `read` tokens.

    A pretrained model's settings for its own task (such as longer summaries) are ignored. The last generated token is
    not read.
    """
    check_positions(module, read)
    limit = positions(module)
    most = search.most if limit is None else min(search.most, limit + 1 - read)
    start = getattr(module.config, "decoder_start_token_id", None)
    return GenerationConfig(
        do_sample=False,
        num_beams=search.beams,
        max_new_tokens=most,
        min_length=0,
        no_repeat_ngram_size=0,
        repetition_penalty=1.0,
        eos_token_id=rows.side.end,
        pad_token_id=rows.side.pad,
        **({"length_penalty": search.length_penalty, "early_stopping": False} if search.beams > 1 else {}),
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
    if data.shape not in (*_WAYS, "choice"):
        raise UserError(
            f"A task of the shape {data.shape} cannot be turned into text generation. Got {data.name}.\n"
            f"Possible shapes: {', '.join(_WAYS)}, choice. For tagging use a model with a token classification head."
        )
    parts = {part: _written(getattr(data, part), data.shape) for part in ("train", "dev", "test")}
    return replace(data, shape="generation", labels=(), options={"main": "exact_match"}, **parts)


def _written(corpus: Corpus, shape: Shape) -> Corpus:
    if shape == "choice":
        chosen = [_chosen(*each) for each in zip(corpus, right_places(corpus).tolist(), strict=True)]
    else:
        chosen = [_WAYS[shape](sentence) for sentence in corpus]
    columns: dict[str, Any] = {
        "text": [text for text, _ in chosen],
        "translation": [answers[0] for _, answers in chosen],
        "references": [answers[1:] for _, answers in chosen],
    }
    frame = pd.DataFrame(columns)
    return Corpus.from_frame(frame, translation="translation", references="references", name=f"{corpus.name} as text")


def _classified(sentence: Sentence) -> tuple[str, list[str]]:
    return _texts(sentence), [str(sentence.label)]


def _measured(sentence: Sentence) -> tuple[str, list[str]]:
    return _texts(sentence), [f"{round(float(str(sentence.label)) * 5) / 5:.1f}"]


def _chosen(sentence: Sentence, right: int) -> tuple[str, list[str]]:
    choices = sentence.choices or []
    listed = " ".join(f"({number}) {choice}" for number, choice in enumerate(choices, start=1))
    return f"question: {sentence.question} choices: {listed} context: {sentence.text}", [choices[right]]


def _answered(sentence: Sentence) -> tuple[str, list[str]]:
    text = f"question: {sentence.question} context: {sentence.text}"
    return text, list(dict.fromkeys(sentence.answers or [])) or [NO_ANSWER]


def _texts(sentence: Sentence) -> str:
    return sentence.text if sentence.second is None else f"first: {sentence.text} second: {sentence.second}"


_WAYS: dict[Shape, Callable[[Sentence], tuple[str, list[str]]]] = {
    "classification": _classified,
    "regression": _measured,
    "span": _answered,
}
