"""Has a pretrained or external model learned to predict text? Its loss, compared with a unigram baseline."""

# S sentence, T token

from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd
import torch

from infoflow.corpus import Corpus, length_batches
from infoflow.foundation import NUM_BLOCKS, block_of, hash64_array
from infoflow.models import Model, model_inputs, pad_rows
from infoflow.results import GIVEN_SCORES, ratio_estimate

SENTENCES = 200
"""Maximum number of sentences that a model is scored on."""
_SHARES = 7  # a masked LM has every 7th token masked at a time: about the 15 % of its training
_TOKENS = 2048


def given_scores(model: Model, corpus: Corpus, max_length: int = 512) -> pd.DataFrame:
    r"""The loss of a model on sentences, in nats per token; claims use it to decide whether the model is trained.

    $$ \mathrm{loss} = -\frac{1}{N} \sum_t \log p(w_t \mid c_t), \qquad
       \mathrm{baseline} = -\sum_w f_w \log f_w $$

    The context c of a token is the preceding text (causal LM), or the sentence with every 7th token masked (masked LM,
    each token once). f are the frequencies of the same N tokens: no model that ignores context does better, so the
    baseline is strict. Special tokens are neither predicted nor counted. Encoder-decoders and models without a token
    prediction head get NaN.

    Args:
        model: A model with a tokenizer.
        corpus: Sentences, of which at most 200 are used, chosen by hash.
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
    """(sentence, input ids, targets or −1 at each position); a masked LM gets several rows per sentence."""
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
    """For each predicted token its sentence, its loss and its id, batch by batch."""
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
