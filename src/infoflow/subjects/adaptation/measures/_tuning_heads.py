"""What tuning changed in each head: its attention, its confidence, its roles, and its cost."""

# B row, H head, Q query, K key, L layer, N bootstrap block (64)

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from infoflow.corpus import Corpus
from infoflow.flow import AbstractMeasure, PassOptions, attention_size, measure
from infoflow.foundation import NUM_BLOCKS
from infoflow.heads import (
    HEAD_ABLATION,
    HEAD_CONFIDENCE,
    Ablation,
    Confidence,
    Head,
    PositionalScores,
    RareTokenScores,
    RelationScores,
    SurfaceStatistics,
    all_heads,
    head_roles,
)
from infoflow.models import Model, keys_stack, tap
from infoflow.results import ratio_estimate

from ._body import began_as, run_body
from ._layers_after_tuning import no_pretraining_loss
from ._states import tuned_table
from ._tables import TUNING_HEADS
from ._task import AbstractTask
from ._task_parts import TaskBatch, TaskPart
from ._task_pruning import head_costs

_KEYS = ["stack", "kind", "layer", "head"]
_TREES = {"words", "head", "deprel"}
_NOT_READ = dict.fromkeys(("js", "js_low", "js_high"), float("nan"))  # a decoder that gets no input from the task
SEPARATOR = ", "  # separator of the roles of a head; the role with the largest margin comes first
Site = tuple[str, str, int]  # (stack, kind, layer)


def tuning_heads(
    before: Model,
    after: Sequence[Model],
    task: AbstractTask,
    corpus: Corpus,
    options: PassOptions | None = None,
    *,
    pretraining: Corpus | None = None,
    texts: int = 200,
    costs_on: int = 128,
    sentences: int = 64,
) -> pd.DataFrame:
    """The table `TUNING_HEADS` without the columns of `TUNED`, one row per head.

    Divergences are those of `js_changes`, on the task's inputs. Confidence and roles are those of `Confidence` and
    `head_roles` (positional, rarest token, first token, SEP, punctuation; relations if the corpus has trees), on the
    column `text` only. After tuning, numbers are means over seeds, and a head has the roles that it has in at least
    half of the seeds. `cost_before` is that of `Ablation` on the pretraining text, NaN without text or a language-model
    head; `value` is the rise of the task's loss on some test examples (`head_costs`).
    """
    options = options or PassOptions()
    start = began_as(before, after)
    read = TaskPart(task, corpus, start, options, most=texts)
    changes = _mean_changes(start, after, read)
    few = TaskPart(task, corpus, start, options, most=costs_on)
    costs = [head_costs(one, few) for one in after]
    before_costs = _pretraining_costs(before, pretraining, sentences, options)
    roles = [_attending(one, read.corpus, options) for one in (start, *after)]
    rows = []
    for index, head in enumerate(all_heads(start.anatomy)):
        rows.append(
            dict(zip(_KEYS, head, strict=True))
            | changes.get(head, _NOT_READ)
            | _roles(head, roles)
            | {"cost_before": before_costs.get(head, float("nan"))}
            | ratio_estimate(np.mean([sums[:, index] for sums, _ in costs], axis=0), costs[0][1], 0.0)
        )
    return tuned_table(TUNING_HEADS, rows)


def _mean_changes(before: Model, after: Sequence[Model], part: TaskPart) -> dict[Head, dict[str, float]]:
    every = js_changes(before, after, part)
    found = {}
    for (stack, kind, layer), first in every[0].items():
        sums = np.mean([one[stack, kind, layer] for one in every], axis=0)
        for head in range(first.shape[1]):
            row = ratio_estimate(sums[:, head, 0], sums[:, head, 1], 0.0, scale="positive")
            found[stack, kind, layer, head] = {"js": row["value"], "js_low": row["low"], "js_high": row["high"]}
    return found


def _attending(model: Model, corpus: Corpus, options: PassOptions) -> dict[Head, tuple[float, list[str]]]:
    """Confidence and roles of one model's heads."""
    measures: list[AbstractMeasure] = [
        Confidence(),
        PositionalScores(offsets=(-2, -1, 1, 2)),
        SurfaceStatistics(),
        RareTokenScores(),
    ]
    tables = measure(model, corpus, [*measures, RelationScores()] if corpus.columns >= _TREES else measures, options)
    held = head_roles(tables)
    held = held[held["holds"]].assign(margin=lambda frame: frame["held_out"] - frame["limit"])
    roles: dict[Head, list[str]] = {}
    for row in held.sort_values("margin", ascending=False, kind="stable").to_dict("records"):
        roles.setdefault(_head_of(row), []).append(row["role"])
    confidence = {_head_of(row): row["value"] for row in tables[HEAD_CONFIDENCE.name].to_dict("records")}
    return {head: (value, roles.get(head, [])) for head, value in confidence.items()}


def _head_of(row: Mapping[Any, Any]) -> Head:
    return str(row["stack"]), str(row["kind"]), int(row["layer"]), int(row["head"])


def _roles(head: Head, models: Sequence[Mapping[Head, tuple[float, list[str]]]]) -> dict[str, Any]:
    """Confidence and roles of a head in the model before tuning and in the tuned models."""
    confidence, (before, *after) = zip(*(one.get(head, (float("nan"), [])) for one in models), strict=True)
    votes = [role for roles in after for role in roles]
    kept = [role for role in dict.fromkeys(votes) if 2 * votes.count(role) >= len(after)]
    return {
        "confidence_before": confidence[0],
        "confidence_after": float(np.mean(confidence[1:])),
        "role_before": SEPARATOR.join(before),
        "role_after": SEPARATOR.join(kept),
    }


def _pretraining_costs(model: Model, corpus: Corpus | None, sentences: int, options: PassOptions) -> dict[Head, float]:
    """The rise of the pretraining loss without each head; empty if there is no such loss."""
    if corpus is None or no_pretraining_loss(model, corpus, options.corruption):
        return {}
    table = measure(model, corpus, [Ablation(others=False, sentences=sentences)], options)[HEAD_ABLATION.name]
    return {_head_of(row): row["value"] for row in table.to_dict("records")}


def js_changes(
    before: Model, after: Sequence[Model], part: TaskPart
) -> list[dict[Site, Float[np.ndarray, "block head 2"]]]:
    r"""For each tuned model and bootstrap block, the sum of Jensen–Shannon divergences and the number of queries.

    $$ D_h = \frac{1}{|Q|} \sum_{i \in Q} H\Big(\frac{a_i + b_i}{2}\Big) - \frac{H(a_i) + H(b_i)}{2} $$

    in nats, at most ln 2; a and b are a head's weights before and after tuning, over all tokens but padding, since
    tuning changes attention on special tokens. Both models must have the same heads.
    """
    sums: list[dict[Site, np.ndarray]] = [{} for _ in after]
    for batch in part.batches_within(_budget(before, part)):
        then = _weights(before, batch)
        blocks = np.repeat(part.blocks[batch.index], batch.rows_each)
        for own, one in zip(sums, after, strict=True):
            now = _weights(one, batch)
            for site, first in then.items():
                queries, keys = batch.real[site[0]], batch.real[keys_stack(site[0], site[1])]
                each_BH = _divergence(first, now[site], queries, keys).double().cpu().numpy()
                found = own.setdefault(site, np.zeros((NUM_BLOCKS, each_BH.shape[1], 2)))
                np.add.at(found[..., 0], blocks, each_BH)
                np.add.at(found[..., 1], blocks, queries.sum(1, keepdim=True).double().cpu().numpy())
    return sums


def _budget(model: Model, part: TaskPart) -> int:
    """Padded tokens per batch, chosen so that two models' attention weights fit into the byte budget."""
    heads = sum(one.num_heads for one in model.anatomy.attentions())
    longest = int(np.max(part.rows.lengths))
    texts = part.options.attention_bytes // (2 * attention_size(heads, longest))
    return min(part.options.tokens_per_batch, longest * max(1, texts))


def _weights(model: Model, batch: TaskBatch) -> dict[Site, Float[Tensor, "row head query key"]]:
    with torch.inference_mode(), tap(model, attention=True) as seen:
        run_body(model, batch)
        found: Mapping = seen.attention
    return {(*key, layer): weights for key, layers in found.items() for layer, weights in enumerate(layers)}


def _divergence(
    a_BHQK: Float[Tensor, "row head query key"],
    b_BHQK: Float[Tensor, "row head query key"],
    queries: Bool[Tensor, "row query"],
    keys: Bool[Tensor, "row key"],
) -> Float[Tensor, "row head"]:
    """Divergence summed over the queries of each row."""
    a_BHQK, b_BHQK = (one.masked_fill(~keys[:, None, None], 0.0) for one in (a_BHQK, b_BHQK))
    mixed, a, b = (torch.special.entr(one).sum(-1) for one in ((a_BHQK + b_BHQK) / 2, a_BHQK, b_BHQK))
    # With rounding, equal weights may give -1e-8.
    return ((mixed - (a + b) / 2).clamp(min=0) * queries[:, None]).sum(-1)
