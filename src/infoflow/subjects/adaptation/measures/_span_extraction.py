"""Extractive question answering: the start and end of the answer in a passage."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, final

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

from infoflow import models
from infoflow._transformers import PreTrainedModel, PreTrainedTokenizerBase
from infoflow.corpus import Corpus, Vocabulary
from infoflow.foundation import Count, UserError, check_settings
from infoflow.models import normalise_answer, token_f1
from infoflow.objectives import SENTENCE_FIELDS, Batch, Field

from ._span_rows import LEFT_OUT, SpanRows, Window, WindowSize
from ._task import AbstractTask, Predictions, Score, Shape
from ._task_rows import SEGMENTS, answered, reads_left_only, task_inputs
from ._text_metrics import guess_score, mean_of, mean_score


@final
@dataclass(frozen=True, kw_only=True, slots=True)
class SpanExtraction(AbstractTask):
    """The answer to a question as a span of a passage, by the recipe of BERT ([@devlin2019bert]).

    A model reads the question and a window of the passage and scores each token as the answer's start and end. In a
    window without the answer, [CLS] is the target. The windows of a passage are combined: the score of a start is taken
    from the window in which its token has the most context, the span with the highest sum of start and end is the
    answer, and "no answer" gets the lowest score of [CLS] over the windows.
    """

    name: ClassVar[str] = "span-extraction"
    shape: ClassVar[Shape] = "span"
    head: ClassVar[str] = "AutoModelForQuestionAnswering"
    term_weights: ClassVar[dict[str, float]] = {"span": 1.0}
    fields: ClassVar[dict[str, Field]] = {
        **SENTENCE_FIELDS,
        SEGMENTS: Field(),
        "start": Field(),
        "end": Field(),
    }

    task: str
    labels: tuple[str, ...] = ()
    nullable: bool = False  # whether "no answer" is an answer, as in SQuAD 2.0
    null_threshold: float = 0.0  # margin by which the score of "no answer" must exceed that of the best span
    doc_stride: Count = 128  # tokens from the start of one window to the start of the next
    query_length: Count = 64  # maximum number of question tokens that are read
    best: Count = 20  # ranked answers per question
    answer_length: Count = 30  # maximum number of tokens of an answer
    causal_spans: bool = False  # allow a decoder to predict spans although it does not see later tokens

    def __post_init__(self) -> None:
        check_settings(self, self.name)

    def rows(self, corpus: Corpus, tokenizer: PreTrainedTokenizerBase, max_length: int) -> SpanRows:
        """Windows of the passages; `SpanRows.examples` maps each to its question."""
        return SpanRows(corpus, tokenizer, WindowSize(max_length, self.doc_stride, self.query_length))

    def counts(self, batch: Batch) -> dict[str, int]:
        """Number of windows whose answer, or lack of one, is known."""
        return {"span": int((batch["start"] != LEFT_OUT).sum())}

    def example_losses(
        self, module: PreTrainedModel, batch: Batch, label_smoothing: float = 0.0
    ) -> Float[Tensor, " example"]:
        """Mean of the cross-entropies of start and end over the tokens of a window; 0 without a target."""
        start, end = self._logits(module, batch)
        options: dict[str, Any] = {"ignore_index": LEFT_OUT, "reduction": "none", "label_smoothing": label_smoothing}
        return (F.cross_entropy(start, batch["start"], **options) + F.cross_entropy(end, batch["end"], **options)) / 2

    def predict(
        self, module: PreTrainedModel, rows: SpanRows, corpus: Corpus, vocabulary: Vocabulary, batch_tokens: int
    ) -> Predictions:
        """The best answer to every question, "" for none, with its probability among the `best` ranked answers."""
        spans: list[list[SpanAnswer]] = [[] for _ in range(len(corpus))]
        nulls = np.full(len(corpus), np.inf)
        texts = list(corpus.column("text"))
        for window, start, end in self._scored(module, rows, vocabulary, batch_tokens):
            found = best_spans(window, texts[window.example], start, end, self.best, self.answer_length)
            spans[window.example] += found
            nulls[window.example] = min(nulls[window.example], start[window.null] + end[window.null])
        ranked = [joined(each, self.best) for each in spans]
        if self.nullable:
            pairs = zip(ranked, nulls.tolist(), strict=True)
            ranked = [with_null(each, null, self.null_threshold)[: self.best] for each, null in pairs]
        ranked = [each or [SpanAnswer("", 0.0)] for each in ranked]
        chances = [probabilities(each) for each in ranked]
        return Predictions(
            said=tuple(each[0].text for each in ranked),
            wanted=tuple((answers or [""])[0] for answers in corpus.column("answers")),
            values=np.array([each[0] for each in chances]),
            alternatives=tuple(
                tuple((answer.text, chance) for answer, chance in zip(*each, strict=True))
                for each in zip(ranked, chances, strict=True)
            ),
        )

    def scores(self, predictions: Predictions, corpus: Corpus, train: Corpus) -> list[Score]:
        """F1 and exact match as defined by SQuAD.

        With `nullable`, also F1 on questions that have an answer, and accuracy on those that have none. The baseline is
        the best of three guesses, chosen on `train`: no answer, the first sentence of the passage, or the most frequent
        answer.

        Source: [@rajpurkar2016], [@rajpurkar2018].
        """
        scores = []
        for metric, score in (("f1", answer_f1), ("exact_match", exact_match)):
            values = np.array([score(*each) for each in zip(predictions.said, _wanted(corpus), strict=True)])
            baseline = guess_score(mean_of(score), _wanted, corpus, train, nothing=True)
            scores.append(mean_score(metric, values, corpus, baseline))
        return [*scores, *self._by_kind(predictions, corpus)]

    def right(self, predictions: Predictions, corpus: Corpus) -> Bool[np.ndarray, " example"]:
        """Which answers exactly match a reference after SQuAD's normalisation."""
        pairs = zip(predictions.said, _wanted(corpus), strict=True)
        return np.array([exact_match(*each) == 1 for each in pairs], dtype=bool)

    def _by_kind(self, predictions: Predictions, corpus: Corpus) -> list[Score]:
        """F1 on questions with an answer, and on those without; the baselines never and always predict "no answer"."""
        has_answer = np.array([bool(answers) for answers in _wanted(corpus)])
        if not self.nullable or has_answer.all() or not has_answer.any():
            return []
        scores = []
        for metric, kept, baseline in (("answerable_f1", has_answer, 0.0), ("unanswerable_accuracy", ~has_answer, 1.0)):
            part = corpus.select(kept)
            said = [predictions.said[row] for row in np.flatnonzero(kept)]
            values = np.array([answer_f1(*each) for each in zip(said, _wanted(part), strict=True)])
            scores.append(mean_score(metric, values, part, baseline))
        return scores

    def _logits(
        self, module: PreTrainedModel, batch: Batch
    ) -> tuple[Float[Tensor, "window token"], Float[Tensor, "window token"]]:
        """Scores of each token as start and as end, float32 also under autocast; the lowest float at padding."""
        self._check(module)
        output = module(**task_inputs(module, batch))
        lowest = torch.finfo(torch.float32).min
        start, end = (one.float().masked_fill(~batch.real, lowest) for one in (output.start_logits, output.end_logits))
        return start, end

    def _check(self, module: PreTrainedModel) -> None:
        kind = type(module).__name__
        if not hasattr(module, "qa_outputs") and "QuestionAnswering" not in kind:
            raise UserError(
                f"A span task needs a model with scores for starts and ends. Got a {kind}.\n"
                f"Load it with transformers.{self.head}."
            )
        if not self.causal_spans and reads_left_only(module):
            raise UserError(
                f"A span task needs a model that sees the whole passage. {kind} is a decoder: its state at a word "
                "does not depend on what follows, so it cannot show where the answer begins.\n"
                "Use an encoder or an encoder–decoder, let the decoder write the answer (--as-text; as_text in a plan "
                "and in Python), or in Python set causal_spans to try it anyway."
            )

    def _scored(
        self, module: PreTrainedModel, rows: SpanRows, vocabulary: Vocabulary, batch_tokens: int
    ) -> Iterator[tuple[Window, np.ndarray, np.ndarray]]:
        """Every window with the scores of its tokens as start and as end."""
        for piece, batch in answered(self, module, rows, vocabulary, batch_tokens):
            start, end = (one.cpu().numpy().astype(np.float64) for one in self._logits(module, batch))
            for index, row in enumerate(piece.tolist()):
                window = rows.windows[row]
                length = len(window.input_ids)
                yield window, start[index, :length], end[index, :length]


def _wanted(corpus: Corpus) -> list[list[str]]:
    return list(corpus.column("answers"))


def exact_match(said: str, wanted: Sequence[str]) -> float:
    """1 if the normalised answer equals one of `wanted`, else 0; without `wanted`, "" is right."""
    return float(models.exact_match(said, _kept(wanted)))


def answer_f1(said: str, wanted: Sequence[str]) -> float:
    """Word overlap with the closest of `wanted`, see `token_f1`; without `wanted`, "" is right."""
    return token_f1(said, _kept(wanted))


def _kept(wanted: Sequence[str]) -> Sequence[str]:
    """Answers that are not empty after normalisation; the empty answer if there are none."""
    return [each for each in wanted if normalise_answer(each)] or [""]


class SpanAnswer(NamedTuple):
    """A span of the passage, or "" for no answer."""

    text: str
    score: float  # sum of the logits of its start and its end


def best_spans(
    window: Window,
    text: str,
    start: Float[np.ndarray, " token"],
    end: Float[np.ndarray, " token"],
    count: int,
    longest: int,
) -> list[SpanAnswer]:
    """The `count` best spans of a window, with at most `longest` tokens.

    $$ s_{ij} = \\mathrm{start}_i + \\mathrm{end}_j, \\qquad i \\le j < i + \\mathrm{longest} $$

    Both ends lie in the passage, and the start must have its maximum context in this window.
    """
    inside = window.offsets[:, 0] >= 0
    starts = np.where(window.best, start, -np.inf)
    ends = np.append(np.where(inside, end, -np.inf), np.full(longest - 1, -np.inf))
    scores = starts[:, None] + np.lib.stride_tricks.sliding_window_view(ends, longest)
    order = np.argsort(-scores, axis=None, kind="stable")[:count]
    found = []
    for first, more in zip(*np.unravel_index(order, scores.shape), strict=True):
        if np.isfinite(scores[first, more]):
            span = text[window.offsets[first, 0] : window.offsets[first + more, 1]]
            found.append(SpanAnswer(span.strip(), float(scores[first, more])))
    return found


def joined(answers: Sequence[SpanAnswer], count: int) -> list[SpanAnswer]:
    """The `count` best distinct answers over all windows of a question, without blank ones."""
    best: dict[str, float] = {}
    for text, score in sorted(answers, key=lambda answer: -answer.score):
        if text:
            best.setdefault(text, score)
    return [SpanAnswer(*each) for each in list(best.items())[:count]]


def with_null(answers: list[SpanAnswer], null: float, threshold: float) -> list[SpanAnswer]:
    """The answers with "" added, in first place if its score exceeds the best answer's by more than `threshold`."""
    at_front = not answers or null - answers[0].score > threshold
    return [SpanAnswer("", null), *answers] if at_front else [*answers, SpanAnswer("", null)]


def probabilities(answers: Sequence[SpanAnswer]) -> list[float]:
    """Softmax over the scores of a question's answers."""
    scores = np.array([answer.score for answer in answers])
    weights = np.exp(scores - scores.max())
    return (weights / weights.sum()).tolist()
