"""Removal of heads from the weights, and the loss as heads are ablated one after another."""

# H head, P point of a curve, R row of an estimate: the value, then its replicates

import copy
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import pandas as pd
import torch

from infoflow.flow import Intervention, NothingToRead, PassOptions, Reader
from infoflow.foundation import UserError, as_written, stream
from infoflow.models import Model, is_pruned_folder, load_model, remove_heads, require_whole, tiny_inputs
from infoflow.results import Column, TableSchema, estimate, estimate_columns

from ._ablate import ablate
from ._ablation_measure import head_losses
from ._ablation_scores import loss_scores
from ._head_sets import Head, HeadSet, all_heads, check_mode, head_set
from ._importance import ImportanceSums
from ._scored import SentenceScorer, no_loss


def prune(model: Model, heads: Iterable[Sequence[str | int]], *, incomplete: str = "refuse") -> Model:
    """A copy of a model without some of its heads; `model` is unchanged.

    Rows of the query, key and value projections and columns of the output projection are removed, so that the logits
    equal those of `ablate(model, heads)`, up to rounding. This is checked on a few tokens before the copy is returned.
    The output projection's bias stays, even if no head is left.

    | family | removal |
    |---|---|
    | BERT, RoBERTa, ELECTRA, DistilBERT, ModernBERT, GPT-NeoX, BART, mBART, Marian, M2M100, T5 | any heads |
    | GPT-2, OPT | any heads, but at least one stays in each layer |
    | LLaMA, Qwen3, Mistral, Gemma (grouped heads) | all heads of a group together |
    | ALBERT (one set of weights for all layers) | the same heads in every layer |
    | Phi-3, whose code takes widths from its configuration | refused |

    Args:
        model: A loaded model.
        heads: (stack, kind, layer, head) of each head to remove, as in `ablate`.
        incomplete: What to do if only some heads of a group with a shared key and value are listed: `"refuse"`, or
            `"zero"` (keep them, with zeros in their part of the output projection).

    Raises:
        UserError: A head does not exist or cannot be removed; the message says why.
    """
    if incomplete not in ("refuse", "zero"):
        raise UserError(f'incomplete must be "refuse" or "zero". Got {incomplete}.')
    chosen = head_set(model, heads)
    require_whole(model.module, model.name, "Removing heads")
    module = copy.deepcopy(model.module)
    whole = chosen if incomplete == "refuse" else _complete_groups(model, chosen)
    removed: dict[tuple[str, str, int], set[int]] = {}
    for stack, kind, layer, head in whole:
        removed.setdefault((stack, kind, layer), set()).add(head)
    silence(model, module, chosen - whole)
    remove_heads(module, model.anatomy, removed)
    return _checked(model, module, chosen)


def load_pruned(folder: str | Path, device: str | torch.device = "auto") -> Model:
    """Load a model that `save_pruned` wrote, with its tokenizer and anatomy; it has the same logits as before.

    `load_model`, and so every command, also reads such a folder.

    Raises:
        UserError: The folder holds no pruned model, or one that this version of transformers builds differently.
    """
    if not is_pruned_folder(Path(folder)):
        raise UserError(f"{folder} has no pruned model (pruned.json). Use load_model for other folders.")
    return load_model(Path(folder), device=device)


def _complete_groups(model: Model, chosen: frozenset) -> frozenset:
    """The heads whose groups are removed completely."""
    complete = set()
    for one in model.anatomy.attentions():
        for first in range(0, one.num_heads, one.group_size):
            group = {(one.stack, one.kind, one.layer, head) for head in range(first, first + one.group_size)}
            if group <= chosen:
                complete |= group
    return frozenset(complete)


def silence(model: Model, module: torch.nn.Module, heads: Iterable[tuple[str, str, int, int]]) -> None:
    """Set these heads' part of the output projections to zero in `module`, a copy of the model's module."""
    outputs = {(a.stack, a.kind, a.layer): a.output for a in model.anatomy.attentions()}
    with torch.no_grad():
        for *site, head in heads:
            for one in outputs[tuple(site)].head(head):
                weight = module.get_parameter(one.parameter)
                weight[one.mask(weight).to(weight.device)] = 0.0


def _checked(model: Model, module: torch.nn.Module, chosen: frozenset) -> Model:
    """The pruned model, after a check that it equals the ablated one."""
    inputs = tiny_inputs(model.module)
    try:
        with torch.no_grad():
            found = _first(module(**inputs))
    except (RuntimeError, ValueError, IndexError, AttributeError, ZeroDivisionError) as error:
        raise UserError(
            f"{type(model.module).__name__} cannot run with these heads removed ({str(error).splitlines()[0]}). Ablate "
            "them instead, or leave at least one head in every layer."
        ) from error
    with torch.no_grad(), ablate(model, sorted(chosen)):
        expected = _first(model.module(**inputs))
    tolerance = 1e-3 if expected.dtype in (torch.float32, torch.float64) else 5e-2
    if found.shape != expected.shape or not (found - expected).norm() <= tolerance * expected.norm():
        raise UserError(
            f"{type(model.module).__name__} computes something else with these heads removed than with them ablated, "
            "because it uses the number of heads elsewhere. Ablate them instead of removing them."
        )
    pruned = load_model(module, tokenizer=model.tokenizer)
    return replace(pruned, name=f"{model.name} (pruned)", target_tokenizer=model.target_tokenizer)


def _first(output: dict) -> torch.Tensor:
    return output["logits"] if "logits" in output else output[0]


ORDERS = ("importance", "iterative", "oracle", "random")

HEAD_PRUNING_CURVE = TableSchema(
    name="head_pruning_curve",
    description="Loss of the model with a share of its heads ablated, without any training, on sentences that were not "
    "used to rank the heads.",
    columns=(
        Column(
            "order",
            "string",
            "",
            "which heads are removed first: the least important (importance: ranked once; iterative: again after each "
            "step), those whose ablation alone raises the loss least (oracle), or random ones (random)",
        ),
        Column("draw", "int64", "", "number of the random order; 0 for all others"),
        Column("kind", "string", "", "heads that may be removed: all, or one kind (encoder-self, …)"),
        Column("removed", "float64", "share", "share of these heads that is ablated"),
        Column("heads", "int64", "heads", "number of heads that are ablated"),
        Column("mode", "string", "", "zero, mean or resample; see heads.ablate"),
        Column("metric", "string", "", "loss"),
        *estimate_columns(
            "nats per token",
            "score of the ablated model",
            "mean over the random orders at the same share (NaN where none was run)",
            "sentences",
        ),
    ),
)


class PruningCurve(Intervention):
    """The loss as more and more heads are ablated, for each order of ablation and each kind of attention.

    Importance is Michel's ("paper" convention, divided by the norm over the layer). The oracle order ranks heads by the
    loss from ablating each alone. Heads are ranked on some sentences, and the loss is measured on others.

    Args:
        orders: Any of importance, iterative, oracle, random.
        shares: Shares of the heads to ablate; `int(share · heads)` of them.
        by_kind: Also ablate each kind of attention alone, if the model has several.
        random_orders: Number of random orders.
        keep: Number of most important heads of each layer and kind that are never ablated; shares are capped
            accordingly.
        mode: See `ablate`.
        sentences: Number of sentences to score on, chosen by hash; the oracle uses the same number of other sentences.
        ranked_on: Number of sentences for importance.

    Source: [@michel2019]; their schedules are 5..100 % (BERT) and 0..90 % (translation).
    """

    table: ClassVar[TableSchema] = HEAD_PRUNING_CURVE
    by_token = True

    def __init__(
        self,
        orders: Sequence[str] = ("importance", "oracle", "random"),
        *,
        shares: Sequence[float] = (0.0, 0.2, 0.4, 0.6, 0.8),
        by_kind: bool = True,
        random_orders: int = 3,
        keep: int = 0,
        mode: str = "zero",
        sentences: int | None = 64,
        ranked_on: int | None = 200,
    ) -> None:
        if unknown := [order for order in orders if order not in ORDERS]:
            raise UserError(f"orders must be among {', '.join(ORDERS)}. Got {unknown[0]}.")
        if not shares or any(not 0 <= share <= 1 for share in shares):
            raise UserError(f"shares of heads lie between 0 and 1. Got {as_written(list(shares))}.")
        if random_orders < 1 or keep < 0:
            raise UserError(f"random_orders must be at least 1 and keep at least 0. Got {random_orders} and {keep}.")
        self.orders, self.shares, self.by_kind = tuple(orders), tuple(sorted(set(shares))), by_kind
        self.random_orders, self.keep, self.mode = random_orders, keep, check_mode(mode)
        self.sentences, self.ranked_on = sentences, ranked_on

    def refusal(self, model: Model) -> str | None:
        return no_loss(model)

    def run(self, reader: Reader, options: PassOptions) -> pd.DataFrame:
        scorer = SentenceScorer(reader)
        rankings = _Rankings(self, scorer, options)
        steps = [
            (order, draw, kind, share, heads)
            for kind, pool in self._pools(reader.model).items()
            for order in self.orders
            for draw in range(self.random_orders if order == "random" else 1)
            for share, heads in rankings.removed(order, draw, kind, pool)
        ]
        variants = list(dict.fromkeys(heads for *_, heads in steps))
        rows = _unseen(scorer, self.sentences)
        scores = loss_scores(scorer, rows, variants, self.mode, options)
        found = dict(zip(variants, scores.scores()[1:], strict=True))
        random: dict[tuple[str, float], list[float]] = {}
        for order, _, kind, share, heads in steps:
            if order == "random":
                random.setdefault((kind, share), []).append(float(found[heads][0]))
        table = []
        for order, draw, kind, share, heads in steps:
            row_R = found[heads]
            keys = {"order": order, "draw": draw, "kind": kind, "removed": share, "heads": len(heads)}
            baseline = float(np.mean(random[kind, share])) if random else float("nan")
            numbers = estimate(float(row_R[0]), row_R[1:], baseline, scores.num_sentences)
            table.append({**keys, "mode": self.mode, "metric": scores.metric, **numbers})
        return pd.DataFrame(table, columns=self.table.column_names)

    def _pools(self, model: Model) -> dict[str, list[Head]]:
        heads = all_heads(model.anatomy)
        kinds = list(dict.fromkeys(head[:2] for head in heads))
        pools = {"all": heads}
        if self.by_kind and len(kinds) > 1:
            pools |= {"-".join(kind): [head for head in heads if head[:2] == kind] for kind in kinds}
        return pools


class _Rankings:
    """Heads in the order of their ablation."""

    def __init__(self, curve: PruningCurve, scorer: SentenceScorer, options: PassOptions) -> None:
        self._curve, self._scorer, self._options = curve, scorer, options
        self._importance: dict[HeadSet, dict[Head, float]] = {}

    def removed(self, order: str, draw: int, kind: str, pool: list[Head]) -> list[tuple[float, HeadSet]]:
        """The ablated heads at each share."""
        iterative = order == "iterative"
        ranked = self._ranked("importance" if iterative else order, draw, kind, pool, frozenset())
        steps, gone = [], []
        for share in self._curve.shares:
            if iterative and gone:
                left = [head for head in pool if head not in gone]
                ranked = gone + self._ranked("importance", 0, kind, left, frozenset(gone))
            gone = ranked[: min(int(share * len(pool)), self._most(pool))]
            steps.append((share, frozenset(gone)))
        return steps

    def _most(self, pool: list[Head]) -> int:
        layers = [head[:3] for head in pool]
        return sum(max(0, layers.count(layer) - self._curve.keep) for layer in set(layers))

    def _ranked(self, order: str, draw: int, kind: str, heads: list[Head], without: HeadSet) -> list[Head]:
        """Heads in the order of ablation, least important first; the best `keep` of each layer come last."""
        if order == "random":
            rng = stream("pruning-order", self._scorer.reader.seed, draw, kind)
            worth = dict(zip(heads, rng.random(len(heads)).tolist(), strict=True))
        else:
            worth = self._costs() if order == "oracle" else self._importances(without)
        ascending = sorted(heads, key=worth.__getitem__)
        protected = [
            head
            for head in ascending
            if sum(other[:3] == head[:3] and worth[other] > worth[head] for other in heads) < self._curve.keep
        ]
        return [head for head in ascending if head not in protected] + protected

    def _costs(self) -> dict[Head, float]:
        curve = self._curve
        scores = head_losses(self._scorer.reader, self._options, curve.mode, curve.sentences)
        heads = all_heads(self._scorer.model.anatomy)
        return dict(zip(heads, scores.changes()[:, 0].tolist(), strict=True))

    def _importances(self, without: HeadSet) -> dict[Head, float]:
        """Importance of heads in the model with some heads ablated."""
        if without not in self._importance:
            sums = ImportanceSums(self._scorer, "paper", "mean", one_minus=False)
            rows = self._scorer.choose(self._curve.ranked_on, "head-importance")
            with ablate(self._scorer.model, sorted(without)):
                for batch in self._scorer.batches(rows, self._options.tokens_per_batch):
                    sums.add(batch)
            scores = sums.scores("layer")
            if not scores:
                raise NothingToRead(f"no sentence of {self._scorer.reader.corpus.name} has a token to predict.")
            self._importance[without] = {
                (site.stack, site.kind, site.layer, head): float(value)
                for site, values in scores.items()
                for head, value in enumerate(values[0])
            }
        return self._importance[without]


def _unseen(scorer: SentenceScorer, sentences: int | None) -> np.ndarray:
    """Sentences to score on; if the corpus has enough, none of them was used to rank the heads."""
    every = scorer.choose(None, "")
    if sentences is None or sentences >= len(every):
        return every
    oracle = scorer.choose(sentences, "head-ablation")
    chosen = scorer.choose(2 * sentences, "pruning-curve")
    chosen = chosen[~np.isin(chosen, oracle)][:sentences]
    return chosen if len(chosen) else every


def removable(removed_P: np.ndarray, cost_RP: np.ndarray) -> np.ndarray:
    """The removed share at which each row of costs, in units of the allowed cost, first exceeds 1; (rows,).

    Args:
        removed_P: Removed shares, ascending.
        cost_RP: Costs at these shares; the cost of removing nothing is 0.
    """
    share_P = np.concatenate([[0.0], removed_P])
    cost_RP = np.concatenate([np.zeros((len(cost_RP), 1)), cost_RP], axis=1)
    found = np.full(len(cost_RP), share_P[-1])
    for row, cost_P in enumerate(cost_RP):
        dear = np.flatnonzero(cost_P > 1)
        if len(dear):
            after, before = dear[0], dear[0] - 1
            part = (1 - cost_P[before]) / (cost_P[after] - cost_P[before])
            found[row] = share_P[before] + part * (share_P[after] - share_P[before])
    return found
