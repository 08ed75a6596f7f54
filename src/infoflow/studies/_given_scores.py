"""Has a model that was given learned to predict text? Its loss, beside what frequencies alone would give."""

# S sentence, T token

from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd
import torch

from infoflow.corpus import Corpus, length_batches
from infoflow.foundation import NUM_BLOCKS, block_of, hash64_array
from infoflow.models import Model, model_inputs, pad_rows
from infoflow.results import Column, TableSchema, estimate_columns, ratio_estimate

SENTENCES = 200
"""Sentences that a model is asked for, at most."""
_SHARES = 7  # every 7th token of a sentence is hidden from a masked LM at a time: about the 15 % of its training
_TOKENS = 2048

GIVEN_SCORES = TableSchema(
    name="given_scores",
    version=1,
    description="How well each given model predicts the tokens of sentences that it is measured on.",
    columns=(
        Column(name="metric", dtype="string", unit="", description="loss"),
        *estimate_columns(
            "nats per token",
            "cross-entropy of the model's predictions; NaN where it has no head that predicts tokens",
            "entropy of these tokens' own frequencies",
            "tokens",
        ),
    ),
)


def given_scores(model: Model, corpus: Corpus, max_length: int = 512) -> pd.DataFrame:
    r"""The loss of a model on sentences, in nats per token: the rule by which claims count it as trained reads it.

    $$ \mathrm{loss} = -\frac{1}{N} \sum_t \log p(w_t \mid c_t), \qquad
       \mathrm{baseline} = -\sum_w f_w \log f_w $$

    The context c of a token is what stands before it (causal LM), or the sentence with every 7th token hidden (masked
    LM), each token once. f are the frequencies of the same N tokens: no model that ignores context does better, so the
    baseline is a hard one. Special tokens are neither predicted nor counted. A model without a head that predicts
    tokens, and one of two stacks, gets NaN.

    Args:
        model: With a tokenizer.
        corpus: Sentences; 200 of them at most, chosen by hash.
        max_length: Longer sentences are cut.

    Returns:
        The table `given_scores`, one row.

    Source: ours; the threshold is that of `task_scores`.
    """
    sums, counts, entropy = np.zeros(NUM_BLOCKS), np.zeros(NUM_BLOCKS), float("nan")
    if _predicts(model):
        order = np.argsort(hash64_array(("given-scores",), corpus.content_ids), kind="stable")
        part = corpus.select(np.sort(order[:SENTENCES]))
        blocks = block_of(part.content_ids)
        tokens: list[np.ndarray] = []
        for sentences, losses, targets in _losses(model, _rows(model, list(part.column("text")), max_length)):
            np.add.at(sums, blocks[sentences], losses)
            np.add.at(counts, blocks[sentences], 1.0)
            tokens.append(targets)
        if tokens:
            shares = np.unique(np.concatenate(tokens), return_counts=True)[1] / counts.sum()
            entropy = float(-(shares * np.log(shares)).sum())
    row = {"metric": "loss", **ratio_estimate(sums, counts, entropy)}
    return GIVEN_SCORES.conform(pd.DataFrame([row]))


def _predicts(model: Model) -> bool:
    if model.tokenizer is None:
        return False
    return model.task == "causal-lm" or (model.task == "masked-lm" and model.tokenizer.mask_token_id is not None)


def _rows(model: Model, texts: Sequence[str], max_length: int) -> list[tuple[int, np.ndarray, np.ndarray]]:
    """(sentence, what the model reads, what it is to say at each place or −1); of a masked LM several a sentence."""
    tokenizer = model.require_tokenizer()
    longest = max_length if model.max_tokens is None else min(max_length, model.max_tokens)
    encoded = tokenizer(list(texts), truncation=True, max_length=longest)["input_ids"]
    special = set(tokenizer.all_special_ids)
    found = []
    for sentence, row in enumerate(encoded):
        ids = np.array(row, dtype=np.int64)
        if model.task == "causal-lm":
            said = np.append(ids[1:], -1)
            said[np.isin(said, list(special))] = -1
            found.append((sentence, ids, said))
            continue
        places = np.flatnonzero(~np.isin(ids, list(special)))
        for first in range(_SHARES):
            hidden = places[first::_SHARES]
            read, said = ids.copy(), np.full(len(ids), -1)
            read[hidden], said[hidden] = int(tokenizer.mask_token_id), ids[hidden]  # type: ignore[arg-type]
            found.append((sentence, read, said))
    return [one for one in found if (one[2] >= 0).any()]


def _losses(
    model: Model, rows: Sequence[tuple[int, np.ndarray, np.ndarray]]
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Of each token that is predicted its sentence, its loss, and itself, batch by batch."""
    lengths = np.array([len(ids) for _, ids, _ in rows], dtype=np.int64)
    for batch in length_batches(lengths, _TOKENS, None if model.pads else 1):
        chosen = [rows[index] for index in batch]
        ids, mask = pad_rows([read.tolist() for _, read, _ in chosen], model.pad_token_id)
        said = torch.full(ids.shape, -1)
        for place, (_, _, targets) in enumerate(chosen):
            said[place, : len(targets)] = torch.from_numpy(targets)
        with torch.no_grad():
            logits = model.module(**model_inputs(model, ids, mask)).logits
        asked = said >= 0
        targets = said[asked].to(model.device)
        wanted = logits[asked.to(model.device)].float()
        losses = wanted.logsumexp(1) - wanted.gather(1, targets[:, None])[:, 0]
        sentences = np.repeat([sentence for sentence, _, _ in chosen], asked.sum(dim=1).numpy())
        yield sentences, losses.double().cpu().numpy(), targets.cpu().numpy()
