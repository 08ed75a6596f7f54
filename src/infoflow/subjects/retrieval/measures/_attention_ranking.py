"""The table `attention_ranking`: does the reader attend more to passages that help it?"""

# Q question, C candidate, H head

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from transformers import PreTrainedModel

from infoflow.corpus import Fact, FactWorld
from infoflow.foundation import Scale, UserError
from infoflow.heads import Head
from infoflow.models import Model
from infoflow.probing import spearman_rows

from ..models import RetrievalModel
from ._asked import READ_KINDS, batches, facts_of_kind, group_estimates, looked_at, mean_estimate, mean_of
from ._attention_shares import attention_shares
from ._candidates import limit_of
from ._evidence_ablation import heads_by_copying, random_heads
from ._evidence_heads import mask_attention, over_masks
from ._groups import EVERY_WEIGHT
from ._inputs import EVIDENCE_PARTS, FactInputs, fact_inputs
from ._ranked_candidates import answer_logs, candidate_passages, posterior, prior_scores
from ._tables import ATTENTION_RANKING

EVERY_KIND = "all"
"""In the column `facts`: facts of all requested kinds."""


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
    r"""Rank correlation of attention on a passage with the posterior, and how often the top passage is the gold one.

    $$ A(z) = \frac{1}{|H|} \sum_{h \in H} \frac{1}{J} \sum_j \sum_{k \in z} a^h_{jk}, \qquad
       \rho(z) \propto \pi(z) \prod_j p(y_j \mid z, x) $$

    | symbol   | here                                                                             |
    |----------|----------------------------------------------------------------------------------|
    | $H$      | the quarter of the heads with the highest copy scores; the baseline: as many others |
    | $j$      | masks                                                                            |
    | $k$      | words of the passage, which is read alone with the question                      |
    | \(\pi\)  | of the model's own source with its weights of now; even for a plain reader       |

    Each question has the passage that answers it, those about the same entity, and others up to `candidates`. The null
    passage has no words, so it is excluded. Spearman's correlation is over one question's candidates. Rows are for all
    facts (`facts` all), for each kind and for each exposure; heads are those with the highest copy scores on the gold
    documents of `kinds`, or of `ranked_by`.

    Args:
        model: A retrieval model with its library, or a reader.
        world: World of the facts; the library's passages are the world's.
        tokenizer: The world's tokenizer.
        kinds: Kinds of facts that occur in a passage.
        ranked_by: Kinds of facts whose gold documents rank the heads; by default `kinds`.
        candidates: Number of candidates per question.
        facts: Maximum number of facts per kind.
        draws: Number of draws of random heads.
        seed: Seeds facts, candidates and random heads.
        batch: Rows per forward pass.

    Raises:
        UserError: There is no masked LM or no fact, fewer than two heads, or too few candidates or draws.

    Source: [@izacard2021distilling] distils all heads' attention.
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
    asked = fact_inputs(world, tokenizer, chosen, "none", limit=limit)
    ids_QC = np.repeat(candidate_passages(world, chosen, candidates, seed), len(asked) // len(chosen), axis=0)
    looked_HQC, logs_QCJ = _readings(reader, world, tokenizer, chosen, ids_QC, heads, limit, batch)
    if retrieving is not None:
        training = retrieving.training
        scores_QC = prior_scores(retrieving.eval(), asked, ids_QC)
        retrieving.train(training)
    else:
        scores_QC = prior_scores(None, asked, ids_QC)
    rho_QC = posterior(scores_QC, logs_QCJ, asked.masks >= 0)
    gold = np.array([world.gold(fact) for fact in asked.facts])
    found = {
        "spearman": [spearman_rows(looked_QC, rho_QC) for looked_QC in looked_HQC],
        "hit": [_first(looked_QC, ids_QC) == gold for looked_QC in looked_HQC],
    }
    rows = list[dict[str, Any]]()
    for metric, of_heads in found.items():
        values = [np.asarray(one, dtype=np.float64) for one in of_heads]
        baseline = mean_of(np.array([mean_of(one) for one in values[1:]]))
        scale: Scale = "share" if metric == "hit" else "any"
        every = {"facts": EVERY_KIND, "weight": EVERY_WEIGHT, **mean_estimate(values[0], asked, baseline, scale)}
        groups = group_estimates(values[0], asked, np.stack(values[1:]), scale)
        rows += [{"metric": metric, **row} for row in (every, *groups)]
    return ATTENTION_RANKING.conform(pd.DataFrame(rows))


def _first(looked_QC: np.ndarray, ids_QC: np.ndarray) -> np.ndarray:
    """The passage of each question with the most attention."""
    return np.take_along_axis(ids_QC, looked_QC.argmax(axis=1)[:, None], axis=1)[:, 0]


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
    """Attention and likelihood for each candidate.

    Attention by each set of heads, (heads, question, candidate), and the log-probability of the answer's tokens,
    (question, candidate, token).
    """
    looked, logs = [], []
    for ids in ids_QC.T:
        inputs = fact_inputs(world, tokenizer, facts, "retrieved", passages=ids.tolist(), limit=limit)
        parts = [_with_passage(reader, part, heads) for part in batches(inputs, batch)]
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
