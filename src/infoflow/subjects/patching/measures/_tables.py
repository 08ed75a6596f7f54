"""Tables of patching: effects of parts, agreement of the methods, faithfulness of the best parts, and one example."""

# N part, P pair, R bootstrap replicate

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd

from infoflow.foundation import NUM_BLOCKS, UserError, current_display, replicate_weights, stream
from infoflow.models import Model
from infoflow.representations import spearman_rows
from infoflow.results import Column, TableSchema, estimate, estimate_columns, ratio_estimate

from ._effects import DENOISING, DIRECTIONS, EXACT, GRADIENT, INTEGRATED, METHODS, PairEffects, pair_effects
from ._encoded import EncodedPair, batches, encoded_pairs
from ._pairs import PatchPair
from ._parts import ATTENTION, DEFAULT, FEED_FORWARD, HEAD, check_parts, parts_of, token_parts
from ._runs import PairRuns

_MADE_BY = "infoflow patch makes it"


def _text(name: str, description: str) -> Column:
    return Column(name, "string", "", description)


_PART = _text(
    "part",
    "head: output of a head (z); query, key, value: those of a head; attention: all heads of a layer; feed-forward: "
    "output of that block; residual: state between layers",
)
_DIRECTION = _text("direction", "denoising: the corrupted input gets the clean value; noising: reversed")
_METHOD = _text(
    "method",
    "exact: a run with the value; gradient: gradient × difference; integrated: mean gradient between the two inputs × "
    "difference",
)
PATCHING_EFFECT = TableSchema(
    name="patching_effect",
    version=1,
    description="Share of the difference between clean and corrupted inputs that one part carries, mean over pairs.",
    made_by=_MADE_BY,
    columns=(
        _PART,
        _text("stack", "encoder or decoder"),
        _text("kind", "kind of attention: self or cross"),
        Column("layer", "int64", "", "block, from 0; for residual states 0..L"),
        Column("head", "int64", "", "head, from 0; -1: not a single head"),
        _text("position", "all; for residual states: before, changed, after the difference, or answer"),
        _DIRECTION,
        _METHOD,
        Column("clean", "float64", "nats", "metric of the clean inputs, mean over pairs"),
        Column("corrupted", "float64", "nats", "metric of the corrupted inputs"),
        *estimate_columns(
            "share of the difference", "sum of effects over sum of differences",
            "the same with values from another input that has nearly the same metric", "pairs",
        ),
    ),
)  # fmt: skip
PATCHING_AGREEMENT = TableSchema(
    name="patching_agreement",
    version=1,
    description="How well first-order effects agree with exact ones, over all parts of one kind.",
    made_by=_MADE_BY,
    columns=(
        _PART,
        _DIRECTION,
        _METHOD,
        _text("statistic", "spearman: rank correlation; overlap: share of the top k in common"),
        Column("k", "int64", "parts", "top parts by size of effect: a tenth; 0: all"),
        *estimate_columns("", "the statistic", "value for unrelated effects: 0, or k / number of parts", "pairs"),
    ),
)
PATCHING_FAITHFULNESS = TableSchema(
    name="patching_faithfulness",
    version=1,
    description="Share of the difference that remains if only the best heads and feed-forward parts see the clean "
    "input and all others keep their values from the corrupted one. Parts are ranked on half of the pairs and scored "
    "on the other half.",
    made_by=_MADE_BY,
    columns=(
        _text("ranking", "the method whose effects (size, denoising) rank the parts, or random 1 to 10"),
        Column("parts", "int64", "parts", "kept parts"),
        Column("total", "int64", "parts", "all parts"),
        *estimate_columns("share of the difference", "the share", "mean share with as many random parts", "pairs"),
    ),
)
PATCHING_EXAMPLE = TableSchema(
    name="patching_example",
    version=1,
    description="One pair: the effect of each residual state at each position (denoising, exact). No interval.",
    made_by=_MADE_BY,
    columns=(
        _text("stack", "encoder or decoder"),
        Column("layer", "int64", "", "state 0..L"),
        Column("position", "int64", "", "token, from 0"),
        _text("token", "token of the clean input"),
        _text("corrupted", "token of the corrupted input"),
        _text("answer", "answer"),
        _text("wrong", "answer to the corrupted input"),
        Column("value", "float64", "share of the difference", "effect of the state"),
    ),
)
TABLES = (PATCHING_EFFECT, PATCHING_AGREEMENT, PATCHING_FAITHFULNESS, PATCHING_EXAMPLE)
_DRAWS, _TOP, _FEWEST = 10, 0.1, 3


def patch_effects(
    model: Model,
    pairs: Sequence[PatchPair],
    *,
    parts: Sequence[str] = DEFAULT,
    steps: int = 5,
    limit: int | None = 100,
    tokens_per_batch: int = 4096,
) -> dict[str, pd.DataFrame]:
    r"""Which parts of a model carry the difference between two inputs over to the answer.

    $$ e(z) = \frac{\sum_p m(x_p \mid z \leftarrow z(x'_p)) - m(x_p)}{\sum_p m(x'_p) - m(x_p)}, \qquad
       \hat e(z) \propto \sum_p \left(z(x'_p) - z(x_p)\right)^\top g_p, \qquad
       g_p = \frac1k \sum_{i=1}^k \left. \frac{\partial m}{\partial z} \right|_{x_p + \frac{i - 1/2}{k} (x'_p - x_p)} $$

    | symbol | here |
    |---|---|
    | $x, x'$ | the input that is run, and the other one: corrupted, clean (denoising), or clean, corrupted (noising) |
    | $z$ | value of a part: a head's output, query, key or value; attention or feed-forward output; residual state |
    | $m$ | logit of the answer minus that of the wrong answer, or log-probability of the answer, in nats |
    | $e$ | exact effect: 1 if the part carries everything, 0 if nothing |
    | $\hat e$ | first-order effect: with the gradient at $x$ (attribution patching), or integrated over $k$ steps |

    The control replaces a part by its value in another input of the same length, with about the same metric under the
    pair's answers, and so shows the effect of unrelated content. Queries, keys and values are those of each query head,
    even where heads share keys. A pass runs many variants, without the blocks below the swapped part.

    Args:
        model: A causal, masked or sequence-to-sequence language model with a tokenizer.
        pairs: From `read_pairs`, or constructed.
        parts: Kinds of parts: head, query, key, value, attention, feed-forward, residual.
        steps: Steps of the integral.
        limit: Maximum number of pairs, chosen by hash; None: all.
        tokens_per_batch: Maximum number of tokens in one pass.

    Returns:
        The tables `patching_effect`, `patching_agreement`, `patching_faithfulness` and `patching_example`.

    Raises:
        UserError: The model predicts no token or has no such part, no pair suits it, or a setting is wrong.

    Source: exact [@vig2020], [@meng2022locating]; attribution patching [@nanda2023]; integrated and faithfulness
    [@hanna2024], who take the ends of the steps instead of their middles.
    """
    names = check_parts(parts)
    if steps < 1 or (limit is not None and limit < 1):
        raise UserError(f"steps and limit must be at least 1. Got {steps} and {limit}.")
    if model.task == "encoder":
        raise UserError(
            f"{model.name} has no language-model head, so no answer can be compared. Load it with its head."
        )
    encoded, chosen = encoded_pairs(model, pairs, limit), parts_of(model, names)
    if not chosen:
        raise UserError(f"{model.name} has none of these parts: {', '.join(names)}.")
    runs = PairRuns(model=model, budget=tokens_per_batch)
    found = pair_effects(runs, list(batches(model, encoded, runs.share)), chosen, steps)
    _check_gap(model, found)
    rows = {
        PATCHING_EFFECT: _effect_rows(found),
        PATCHING_AGREEMENT: _agreement_rows(found),
        PATCHING_FAITHFULNESS: _faithfulness_rows(runs, encoded, found),
        PATCHING_EXAMPLE: _example_rows(runs, encoded, found),
    }
    return {one.name: one.conform(pd.DataFrame(own, columns=pd.Index(one.column_names))) for one, own in rows.items()}


def _check_gap(model: Model, found: PairEffects) -> None:
    gap = ratio_estimate(found.by_block(found.gap), found.by_block(np.ones(len(found.gap))), math.nan)
    if not gap["low"] > 0:
        current_display().warn(
            f"The metric of {model.name} is {gap['value']:.3g} nats higher for clean than for corrupted inputs "
            f"({gap['low']:.3g} to {gap['high']:.3g}), so there may be no difference at all. Then effects, "
            "which are shares of this difference, mean nothing."
        )


def _effect_rows(found: PairEffects) -> Iterator[dict[str, Any]]:
    gaps, metrics = found.by_block(found.gap), {"clean": found.clean.mean(), "corrupted": found.corrupted.mean()}
    for (direction, method), values in found.effects.items():
        control = found.controls[direction, method]
        known = ~np.isnan(control).any(axis=0)
        scale = found.gap[known].sum()
        sums = found.by_block(values)
        for index, part in enumerate(found.parts):
            base = float(control[index, known].sum() / scale) if known.any() and scale else math.nan
            keys = {"part": part.name, "stack": part.stack, "kind": part.kind, "layer": part.layer, "head": part.head}
            keys |= {"position": part.position, "direction": direction, "method": method, **metrics}
            yield keys | ratio_estimate(sums[index], gaps, base) | {"count": len(found.gap)}


def _replicates(found: PairEffects, values: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Effects of the parts, (1 + R, N): row 0 over all pairs, then one row per bootstrap replicate."""
    weights = np.concatenate([np.ones((1, NUM_BLOCKS)), replicate_weights()])
    with np.errstate(invalid="ignore", divide="ignore"):
        return weights @ found.by_block(values[rows]).T / (weights @ found.by_block(found.gap))[:, None]


def _agreement_rows(found: PairEffects) -> Iterator[dict[str, Any]]:
    names = np.array([part.name for part in found.parts])
    for name in dict.fromkeys(names.tolist()):
        rows = np.flatnonzero(names == name)
        if len(rows) < _FEWEST:
            continue
        top = max(1, round(_TOP * len(rows)))
        for direction in DIRECTIONS:
            exact = _replicates(found, found.effects[direction, EXACT], rows)
            for method in (GRADIENT, INTEGRATED):
                other = _replicates(found, found.effects[direction, method], rows)
                keys = {"part": name, "direction": direction, "method": method}
                ranks = estimate(*_first(spearman_rows(exact, other)), 0, len(found.gap), scale="correlation")
                common = estimate(*_first(_overlaps(exact, other, top)), top / len(rows), len(found.gap), scale="share")
                yield {**keys, "statistic": "spearman", "k": 0, **ranks}
                yield {**keys, "statistic": "overlap", "k": top, **common}


def _first(values: np.ndarray) -> tuple[float, np.ndarray]:
    return values[0], values[1:]


def _overlaps(one: np.ndarray, other: np.ndarray, k: int) -> np.ndarray:
    best = [np.abs(each).argsort(1, kind="stable")[:, ::-1][:, :k] for each in (one, other)]
    return np.array([len({*a.tolist()} & {*b.tolist()}) / k for a, b in zip(*best, strict=True)])


def _faithfulness_rows(runs: PairRuns, encoded: Sequence[EncodedPair], found: PairEffects) -> Iterator[dict[str, Any]]:
    """Heads and feed-forward parts, ranked on the pairs of even blocks and scored on those of odd ones."""
    attention = HEAD if any(part.name == HEAD for part in found.parts) else ATTENTION
    pool, odd = [part for part in found.parts if part.name in (attention, FEED_FORWARD)], found.blocks % 2 == 1
    if not pool or odd.all() or not odd.any():
        return
    places = [found.parts.index(part) for part in pool]
    sizes = sorted({0, *(2**power for power in range(len(pool).bit_length())), len(pool)})
    effects = {method: found.effects[DENOISING, method][places][:, ~odd].sum(1) for method in METHODS}
    orders = {method: np.abs(values).argsort(kind="stable")[::-1] for method, values in effects.items()}
    orders |= {f"random {n + 1}": stream("patching-random", n).permutation(len(pool)) for n in range(_DRAWS)}
    swapped = [[pool[place] for place in order[size:]] for order in orders.values() for size in sizes]
    scores = np.zeros((len(swapped), len(encoded)))
    for batch in batches(runs.model, [encoded[row] for row in np.flatnonzero(odd)], runs.share):
        clean, corrupted = runs.sides(batch, pool)
        scores[:, np.flatnonzero(odd)[batch.rows]] = runs.swapped(batch, clean, swapped, corrupted.values).numpy()
    kept = np.where(odd, scores - found.corrupted, 0).reshape(len(orders), len(sizes), -1)
    gap = np.where(odd, found.gap, 0)
    random = kept[len(METHODS) :].sum((0, 2)) / _DRAWS / gap.sum()
    for ranking, shares in zip(orders, kept, strict=True):
        for size, share, chance in zip(sizes, shares, random, strict=True):
            number = ratio_estimate(found.by_block(share), found.by_block(gap), chance) | {"count": int(odd.sum())}
            yield {"ranking": ranking, "parts": size, "total": len(pool), **number}


def _example_rows(runs: PairRuns, encoded: Sequence[EncodedPair], found: PairEffects) -> Iterator[dict[str, Any]]:
    """The pair with the median difference."""
    middle = int(np.argsort(found.gap, kind="stable")[len(encoded) // 2])
    one, model = encoded[middle], runs.model
    (batch,) = batches(model, [one], runs.budget)
    clean, corrupted = runs.sides(batch, [])
    parts = token_parts(model, batch)
    scores = runs.swapped(batch, corrupted, [[part] for part in parts], clean.values)[:, 0]
    gap, before = float(clean.metric[0] - corrupted.metric[0]), float(corrupted.metric[0])
    names = {stack.name: _tokens(model, one, stack.name) for stack in model.anatomy.stacks}
    for part, score in zip(parts, scores.tolist(), strict=True):
        token, other = names[part.stack][int(part.position)]
        yield {"stack": part.stack, "layer": part.layer, "position": int(part.position), "token": token} | {
            "corrupted": other, "answer": one.pair.answer, "wrong": one.pair.wrong,
            "value": (score - before) / gap if gap else math.nan,
        }  # fmt: skip


def _tokens(model: Model, one: EncodedPair, stack: str) -> list[tuple[str, str]]:
    """The tokens of both inputs in readable form."""
    reads = stack == model.anatomy.reads.name
    tokenizer = model.require_tokenizer() if reads else model.output_tokenizer
    assert tokenizer is not None
    sides = (one.clean, one.corrupted) if reads else (one.written, one.written)
    return [(_read(tokenizer, one), _read(tokenizer, other)) for one, other in zip(*sides, strict=True)]


def _read(tokenizer: Any, token: int) -> str:
    return tokenizer.decode([token]).strip() or str(tokenizer.convert_ids_to_tokens(token))
