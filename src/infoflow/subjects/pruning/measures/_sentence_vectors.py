"""How far a pruned encoder's sentence vectors are from the whole model's: for encoders that predict no tokens."""

# S sentence, T token, D width of a state

import numpy as np
import torch
from jaxtyping import Float

from infoflow.corpus import Corpus, length_batches
from infoflow.flow import PassOptions
from infoflow.heads import Head, SentenceFunction, corpus_scores
from infoflow.models import Model, model_inputs, pad_rows

_TOKENS = 4096  # of a batch
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
    """How far the sentence vectors move, one minus the cosine, if a head alone is ablated."""
    few = corpus.select(list(range(min(len(corpus), _RANKED_ON))))
    scores = corpus_scores(model, few, [frozenset({head}) for head in heads], cosine_to(model, few, options)).scores()
    return {head: float(1.0 - scores[1 + index, 0]) for index, head in enumerate(heads)}


def _normalised(vectors_SD: np.ndarray) -> np.ndarray:
    return vectors_SD / np.maximum(np.linalg.norm(vectors_SD, axis=1, keepdims=True), 1e-12)
