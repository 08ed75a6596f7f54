"""The table `attention_ranking`, which shows whether the reader attends more to passages that help it."""

# Q question, C candidate, H head, J token of the answer

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from infoflow._transformers import PreTrainedModel
from infoflow.corpus import Fact, FactWorld
from infoflow.foundation import Scale, UserError, stream
from infoflow.heads import Head
from infoflow.models import Model, evaluating
from infoflow.representations import spearman_rows

from ..models import Candidates, RetrievalModel, block_mean, document_posterior, source_scores
from ._answers import limit_of
from ._evidence_heads import heads_by_copying, mask_attention, over_masks, random_heads
from ._fact_reading import READ_KINDS, attention_shares, facts_of_kind, looked_at
from ._inputs import EVIDENCE_PARTS, FactInputs, fact_inputs
from ._tables import ATTENTION_RANKING, EVERY_WEIGHT, fact_blocks, group_rows, mean_of

EVERY_KIND = "all"
"""Value of the column `facts` for facts of all requested kinds together."""


def attention_ranking(
    model: RetrievalModel | PreTrainedModel,
    world: FactWorld,
    tokenizer: object,
    *,
    kinds: Sequence[str] = READ_KINDS,
    ranked_by: Sequence[str] | None = None,
    candidates: int = 4,
    facts: int = 128,
    draws: int = 5,
    seed: int = 0,
    batch: int = 64,
) -> pd.DataFrame:
    r"""Rank correlation of a passage's attention with its posterior, and how often the most attended passage is gold.

    $$ A(z) = \frac{1}{|H|} \sum_{h \in H} \frac{1}{J} \sum_j \sum_{k \in z} a^h_{jk}, \qquad
       \rho(z) \propto \pi(z) \prod_j p(y_j \mid z, x) $$

    | symbol   | here                                                                             |
    |----------|----------------------------------------------------------------------------------|
    | $H$      | the quarter of the heads with the highest copy scores; for the baseline as many other heads |
    | $j$      | masks                                                                            |
    | $k$      | words of the passage; each passage is read separately with the question          |
    | \(\pi\)  | prior of the model's own source with its current weights; uniform for a plain reader |

    A question's candidates are the passage that answers it, those about the same entity, and others up to `candidates`.
    The null passage has no words, so it is excluded. Spearman's correlation is over these candidates. Rows are for all
    facts (`facts` is "all"), for each kind and for each exposure. Copy scores of heads are measured with the gold
    documents of `kinds`, or of `ranked_by`.

    Args:
        model: A retrieval model with its library, or a reader.
        world: World of the facts; its passages must be those of the library.
        tokenizer: The world's tokenizer.
        kinds: Kinds of facts that occur in a passage.
        ranked_by: Kinds of facts whose gold documents rank the heads; by default `kinds`.
        candidates: Number of candidates per question.
        facts: Maximum number of facts per kind.
        draws: Number of draws of random heads.
        seed: Seeds facts, candidates and random heads.
        batch: Rows per forward pass.

    Raises:
        UserError: The reader is not a masked LM or has fewer than two heads, there is no fact, or `candidates` or
            `draws` is too small.

    Source: [@izacard2021distilling], which distils the attention of all heads.
    """
    retrieving = model if isinstance(model, RetrievalModel) else None
    reader = looked_at(retrieving.reader if retrieving is not None else model)
    if draws < 1:
        raise UserError(f"draws must be at least 1: random heads are the baseline. Got {draws}.")
    chosen, ranking = (
        [fact for kind in some for fact in facts_of_kind(world, kind, facts, seed) if world.gold(fact) >= 0]
        for some in (kinds, ranked_by or kinds)
    )
    limit = limit_of(model)
    ranked = heads_by_copying(reader, fact_inputs(world, tokenizer, ranking, "gold", limit=limit), batch)
    if len(ranked) < 2:
        raise UserError(f"{reader.name} has {len(ranked)} head. Use a reader with more.")
    num = max(1, len(ranked) // 4)
    heads = [frozenset(ranked[:num]), *random_heads(ranked[num:], num, draws, seed)]
    inputs = fact_inputs(world, tokenizer, chosen, "none", limit=limit)
    ids_QC = np.repeat(candidate_passages(world, chosen, candidates, seed), len(inputs) // len(chosen), axis=0)
    looked_HQC, logs_QCJ = _readings(reader, world, tokenizer, chosen, ids_QC, heads, limit, batch)
    rho_QC = posterior(prior_scores(retrieving, inputs, ids_QC), logs_QCJ, inputs.masks >= 0)
    gold = np.array([world.gold(fact) for fact in inputs.facts])
    found = {
        "spearman": [spearman_rows(looked_QC, rho_QC) for looked_QC in looked_HQC],
        "hit": [ids_QC[np.arange(len(gold)), looked_QC.argmax(axis=1)] == gold for looked_QC in looked_HQC],
    }
    rows = list[dict[str, Any]]()
    for metric, of_heads in found.items():
        values = [np.asarray(one, dtype=np.float64) for one in of_heads]
        baseline = mean_of(np.array([mean_of(one) for one in values[1:]]))
        scale: Scale = "share" if metric == "hit" else "any"
        numbers = block_mean(values[0], fact_blocks(inputs.facts), baseline, scale)
        rows.append({"facts": EVERY_KIND, "weight": EVERY_WEIGHT, "metric": metric, **numbers})
        rows += group_rows(inputs.facts, values[0], np.stack(values[1:]), scale, metric=metric)
    return ATTENTION_RANKING.conform(pd.DataFrame(rows))


def _readings(
    reader: Model,
    world: FactWorld,
    tokenizer: object,
    facts: Sequence[Fact],
    ids_QC: np.ndarray,
    heads: Sequence[frozenset[Head]],
    limit: int,
    batch: int,
) -> tuple[np.ndarray, np.ndarray]:
    """Attention of each set of heads on each candidate, (heads, question, candidate), and the log-probability of the
    answer's tokens, (question, candidate, token).
    """
    looked, logs = [], []
    for ids in ids_QC.T:
        inputs = fact_inputs(world, tokenizer, facts, "retrieved", passages=ids.tolist(), limit=limit)
        parts = [_with_passage(reader, part, heads) for part in inputs.batches(batch)]
        looked.append(np.concatenate([one for one, _ in parts], axis=1))
        logs.append(np.concatenate([one for _, one in parts]))
    return np.stack(looked, axis=2), np.stack(logs, axis=1)


def _with_passage(reader: Model, inputs: FactInputs, heads: Sequence[frozenset[Head]]) -> tuple[np.ndarray, np.ndarray]:
    logits, attention = mask_attention(reader, inputs)
    words = np.isin(inputs.parts, EVIDENCE_PARTS)[:, None, None]
    there = inputs.masks >= 0
    shares = [over_masks(attention_shares(weights, words).share, there) for weights in attention]
    means = [np.mean([shares[layer][:, head] for _, _, layer, head in sorted(one)], axis=0) for one in heads]
    return np.array(means), answer_logs(logits, inputs)


def candidate_passages(world: FactWorld, facts: Sequence[Fact], num: int, seed: int) -> np.ndarray:
    """Passages of each fact, int64 (fact, candidate): the one with the fact, others about its entity, random ones."""
    total = world.num_passages()
    if not 3 <= num <= total:
        raise UserError(f"candidates must lie between 3 and the number of passages, {total:,}. Got {num:,}.")
    rows = []
    for fact in facts:
        draw = stream("evidence-candidates", seed, fact.number)
        near = world.distractors(fact)
        first = [world.gold(fact), *draw.permutation(near)]
        others = np.setdiff1d(np.arange(total), first)
        chosen = [*first, *draw.choice(others, max(num - len(first), 0), replace=False)][:num]
        rows.append(draw.permutation(np.array(chosen, dtype=np.int64)))
    return np.array(rows)


def prior_scores(model: RetrievalModel | None, inputs: FactInputs, ids: np.ndarray) -> np.ndarray:
    """The logit f(x, z) of each candidate, (question, candidate), with current weights; 0 without a retrieval model."""
    if model is None:
        return np.zeros(ids.shape)
    rows, mask = inputs.queries(model.device)
    with evaluating(model):
        choice = Candidates.of(ids, source_scores(model, rows, mask, ids), np.zeros(len(ids), dtype=bool))
        return model.logits(rows, mask, choice)[:, :-1].double().cpu().numpy()


def posterior(scores: np.ndarray, log_likelihoods: np.ndarray, tokens: np.ndarray) -> np.ndarray:
    """ρ(z) of each candidate, (question, candidate), without the null passage, which has no evidence to attend to."""
    given = [torch.from_numpy(one) for one in (scores, log_likelihoods, tokens)]
    return document_posterior(given[0], given[1], tokens=given[2]).numpy()


def answer_logs(logits: Tensor, inputs: FactInputs) -> np.ndarray:
    """The log-probability of each token of the true answer at its mask, (question, token); 0 beyond the last token."""
    places = torch.from_numpy(inputs.masks).to(logits.device)
    answers = torch.from_numpy(inputs.candidates[np.arange(len(inputs)), inputs.answers]).to(logits.device)
    rows = torch.arange(len(inputs), device=logits.device)[:, None]
    logs = logits[rows, places.clamp(min=0)].double().log_softmax(dim=-1)
    logs = logs.gather(2, answers.clamp(min=0)[:, :, None])[:, :, 0]
    return torch.where(places >= 0, logs, 0.0).cpu().numpy()
