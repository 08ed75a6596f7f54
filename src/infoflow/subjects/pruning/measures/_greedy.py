"""Select heads without training: by importance, confidence, relevance, or at random."""

from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float

from infoflow.corpus import Corpus, length_batches
from infoflow.flow import Intervention, Measure, PassOptions, measure
from infoflow.foundation import UserError, current_display, stream
from infoflow.heads import (
    Confidence,
    Head,
    HeadSet,
    Importance,
    Relevance,
    SentenceFunction,
    ablate,
    corpus_scores,
    importance,
)
from infoflow.models import Model, model_inputs, pad_rows

from ._curve import curve_row, frames, head_rows, quality, scope_of
from ._head_gates import gated_heads

GREEDY = ("importance", "iterative", "confidence", "relevance", "random")
"""Rankings for removing heads without training."""
_KEYS = ["stack", "kind", "layer", "head"]


def rank_heads(
    model: Model,
    corpus: Corpus,
    by: str = "importance",
    *,
    kinds: Sequence[str] | None = None,
    draw: int = 0,
    options: PassOptions | None = None,
) -> list[Head]:
    """Heads in the order of their removal, least valuable first.

    Heads that share a key and value are adjacent and ranked by their mean score, so that whole groups can be removed.

    Args:
        model: A loaded model.
        corpus: Text for the ranking.
        by: `"importance"` (scores of each layer are divided by their norm; for an encoder that predicts nothing, how
            far its sentence vectors move without the head), `"confidence"`, `"relevance"` or `"random"`.
        kinds: Kinds of attention whose heads may be removed ("encoder-self", ...); default: all.
        draw: Number of the random order.
    """
    if by not in GREEDY or by == "iterative":
        raise UserError(f"by must be importance, confidence, relevance or random. Got {by}.")
    heads = gated_heads(model, kinds)
    if by == "random":
        values = stream("pruning-order", draw).random(len(heads)).tolist()
        worth = dict(zip(heads, values, strict=True))
    else:
        vectors = by == "importance" and judged_by_vectors(model)
        worth = vector_importance(model, corpus, heads, options) if vectors else _worth(model, corpus, by, options)
    sizes = group_sizes(model)
    groups: dict[Head, list[float]] = {}
    for head in heads:
        groups.setdefault(_group(head, sizes[head[:3]]), []).append(worth[head])
    means = {group: sum(values) / len(values) for group, values in groups.items()}
    return sorted(heads, key=lambda head: (means[_group(head, sizes[head[:3]])], head))


def greedy_pruning(
    model: Model,
    ranked_on: Corpus,
    scored_on: Corpus,
    *,
    by: str = "importance",
    keep: Sequence[int],
    kinds: Sequence[str] | None = None,
    metric: str | SentenceFunction = "loss",
    draw: int = 0,
    options: PassOptions | None = None,
) -> dict[str, pd.DataFrame]:
    """The curve of quality against the number of heads kept, without training: tables `pruning` and `pruned_heads`.

    Args:
        model: A loaded model.
        ranked_on: Sentences for the ranking; if they overlap `scored_on`, the curve is too optimistic.
        scored_on: Sentences for the quality.
        by: One of `GREEDY`; `"iterative"` recomputes importance after each step.
        keep: Numbers of heads to keep, among those that may be removed.
        kinds: Kinds of attention whose heads may be removed.
        metric: See `quality`.
        draw: Number of the random order.

    Raises:
        UserError: A number in `keep` is negative or larger than the number of heads.
    """
    choices = greedy_removals(model, ranked_on, by=by, keep=keep, kinds=kinds, draw=draw, options=options)
    full = float(quality(model, scored_on, frozenset(), metric, options=options)["scores"][0])
    rows, heads = [], []
    with current_display().progress(f"Pruning {model.name} by {by}", len(keep), "steps") as progress:
        for point, (k, removed) in enumerate(choices):
            keys = {"method": by, "scope": scope_of(kinds), "draw": draw, "point": point}
            found = quality(model, scored_on, removed, metric, options=options)
            rows.append(curve_row(model, {**keys, "setting": float(k)}, removed, found, full))
            heads += head_rows(model, keys, removed)
            progress.advance(1)
    return frames(rows, heads)


def greedy_removals(
    model: Model,
    ranked_on: Corpus,
    *,
    by: str = "importance",
    keep: Sequence[int],
    kinds: Sequence[str] | None = None,
    draw: int = 0,
    options: PassOptions | None = None,
) -> Iterator[tuple[int, HeadSet]]:
    """Yield the removed heads of `greedy_pruning` for each number of heads to keep, the largest number first."""
    pool = gated_heads(model, kinds)
    if wrong := [k for k in keep if not 0 <= k <= len(pool)]:
        raise UserError(f"keep must lie between 0 and the number of removable heads, {len(pool)}. Got {wrong[0]}.")
    largest_first = sorted(keep, reverse=True)
    if by == "iterative":
        return _iteratively(model, ranked_on, largest_first, kinds, options)
    ranked = rank_heads(model, ranked_on, by, kinds=kinds, draw=draw, options=options)
    return iter([(k, frozenset(ranked[: len(pool) - k])) for k in largest_first])


def _iteratively(
    model: Model, corpus: Corpus, keep: Sequence[int], kinds: Sequence[str] | None, options: PassOptions | None
) -> Iterator[tuple[int, HeadSet]]:
    num, gone = len(gated_heads(model, kinds)), list[Head]()
    for k in keep:
        ranked = gone + _rank_again(model, corpus, kinds, gone, options)
        gone = ranked[: num - k]
        yield k, frozenset(gone)


def _rank_again(
    model: Model, corpus: Corpus, kinds: Sequence[str] | None, gone: list[Head], options: PassOptions | None
) -> list[Head]:
    with ablate(model, gone):
        table = importance(model, corpus, normalise="layer", options=options)
    worth = _values(table)
    return sorted((head for head in gated_heads(model, kinds) if head not in gone), key=worth.__getitem__)


def _worth(model: Model, corpus: Corpus, by: str, options: PassOptions | None) -> dict[Head, float]:
    measures: dict[str, Measure | Intervention] = {
        "importance": Importance(normalise="layer", sentences=None),
        "confidence": Confidence(),
        "relevance": Relevance(),
    }
    chosen = measures[by]
    return _values(measure(model, corpus, [chosen], options)[chosen.name])


def _values(table: pd.DataFrame) -> dict[Head, float]:
    means = table.groupby(_KEYS)["value"].mean()
    return {(str(s), str(k), int(la), int(h)): float(v) for (s, k, la, h), v in means.items()}  # type: ignore[misc]


def group_sizes(model: Model) -> dict[tuple[str, str, int], int]:
    """Number of query heads per key/value head, by attention; 1 if each query head has its own."""
    return {(a.stack, a.kind, a.layer): a.group_size for a in model.anatomy.attentions()}


def _group(head: Head, size: int) -> Head:
    return (*head[:3], head[3] // size)


# Encoders that predict no tokens are scored by how near their sentence vectors are to the whole model's.
# S sentence, T token, D width of a state

_TOKENS = 4096  # tokens of a batch
_RANKED_ON = 64  # sentences, each read once for every head


def judged_by_vectors(model: Model) -> bool:
    """Whether a model has no loss: an encoder without a head that predicts tokens."""
    return model.task == "encoder" and model.tokenizer is not None


def sentence_vectors(model: Model, corpus: Corpus, max_length: int = 512) -> Float[np.ndarray, "sentence width"]:
    """The mean of the last states of each sentence's tokens, as in sentence-transformers."""
    longest = min(max_length, model.max_tokens or max_length)
    texts = list(corpus.column("text"))
    rows = model.require_tokenizer()(texts, truncation=True, max_length=longest)["input_ids"]
    vectors: dict[int, np.ndarray] = {}
    lengths = np.array([len(row) for row in rows], dtype=np.int32)
    for batch in length_batches(lengths, _TOKENS, max_sentences=None if model.pads else 1):
        inputs = model_inputs(model, *pad_rows([rows[row] for row in batch], model.pad_token_id))
        with torch.no_grad():
            states_STD = model.module(**inputs)[0].float().cpu()
        for row, states_TD in zip(batch, states_STD, strict=True):
            vectors[row] = states_TD[: lengths[row]].mean(dim=0).numpy()
    return np.stack([vectors[row] for row in range(len(rows))])


def cosine_to(model: Model, corpus: Corpus, options: PassOptions | None) -> SentenceFunction:
    r"""A metric: the cosine of each sentence's vector with that of `model` as it is now.

    $$ \cos(v_s, v'_s) = \frac{v_s \cdot v'_s}{\|v_s\| \, \|v'_s\|} $$
    """
    longest = (options or PassOptions()).max_length
    whole_SD = _normalised(sentence_vectors(model, corpus, longest))

    def cosine(pruned: Model, sentences: Corpus) -> Float[np.ndarray, " sentence"]:
        return (whole_SD * _normalised(sentence_vectors(pruned, sentences, longest))).sum(axis=1)

    return cosine


def vector_importance(
    model: Model, corpus: Corpus, heads: list[Head], options: PassOptions | None
) -> dict[Head, float]:
    """How far the sentence vectors move, one minus the cosine, if only that head is ablated."""
    few = corpus.select(list(range(min(len(corpus), _RANKED_ON))))
    scores = corpus_scores(model, few, [frozenset({head}) for head in heads], cosine_to(model, few, options)).scores()
    return {head: float(1.0 - scores[1 + index, 0]) for index, head in enumerate(heads)}


def _normalised(vectors_SD: np.ndarray) -> np.ndarray:
    return vectors_SD / np.maximum(np.linalg.norm(vectors_SD, axis=1, keepdims=True), 1e-12)
