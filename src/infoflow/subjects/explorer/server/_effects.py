"""Effects of an intervention: on the prediction at every position, and on the states of every layer."""

# V variant, T token, D width

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from infoflow.heads import HeadEdit, HeadSet, all_heads, candidate_pairs, likeliest, token_names
from infoflow.models import (
    BlockOutputs,
    HeadCall,
    first_block,
    keys_stack,
    recorded_blocks,
    skipped_blocks,
    tap,
    without_token,
)

from ._readings import SentenceReading, token_logits
from ._request import changed

_TOGETHER = 1024  # padded tokens per pass


def effect(before: SentenceReading, after: SentenceReading) -> dict[str, Any]:
    r"""The changes between two readings of one sentence.

    $$ \mathrm{KL}_t = \sum_v p_t(v) \ln \frac{p_t(v)}{p'_t(v)}, \qquad
    d_{lt} = 1 - \cos(h_{lt}, h'_{lt}) $$

    KL is in nats, with the prediction p at token t before the change and p' after it. Numbers are null at tokens that
    no longer see anything.
    """
    model = before.subject.model
    blind = after.change.blind(model, before.sentence)
    answer: dict[str, Any] = {
        "blind": blind,
        "distance": {
            stack: [_digits(row, blind[stack]) for row in distances(states, after.states[stack])]
            for stack, states in before.states.items()
        },
    }
    if not before.has_head:
        return answer
    first, second = before.log_shares, after.log_shares
    stack = model.anatomy.predicts.name
    ids, logs = likeliest(first, 3)
    ids_after, logs_after = likeliest(second, 3)
    return answer | {
        "stack": stack,
        "divergence": _digits(divergence(first, second), blind[stack]),
        "before": [candidate_pairs(*row) for row in zip(ids, logs.exp(), strict=True)],
        "after": [candidate_pairs(*row) for row in zip(ids_after, logs_after.exp(), strict=True)],
        "names": token_names(model, torch.cat([ids, ids_after])),
    }


def divergence(log_p: Float[Tensor, "*row vocabulary"], log_q: Float[Tensor, "*row vocabulary"]) -> Tensor:
    """KL(p || q) in nats, from log-probabilities."""
    return torch.linalg.vecdot(log_p.exp(), log_p - log_q).clamp(min=0)


def distances(before: Float[Tensor, "*row width"], after: Float[Tensor, "*row width"]) -> Tensor:
    """1 − cos; exactly 0 where nothing changed."""
    cosine = torch.nn.functional.cosine_similarity(before.float(), after.float(), dim=-1)
    return torch.where((before == after).all(-1), 0.0, (1 - cosine).clamp(min=0))


def _digits(row: Tensor, left_out: Sequence[int] = ()) -> list[float | None]:
    return [None if t in left_out else float(f"{value:.4g}") for t, value in enumerate(row.tolist())]


def token_effects(reading: SentenceReading, stack: str) -> Iterator[list[dict[str, Any]]]:
    """The effect of hiding each token of a stack, a few tokens at a time: one row per token.

    A row has the mean divergence of the predictions and, for each layer, the distance (1 − cos) by which each other
    token's states move. The hidden token itself and tokens that see nothing are left out of means.
    """
    sentence = reading.sentence
    tokens = [one for one in range(len(sentence.tokens[stack])) if one not in reading.change.hidden(stack)]
    step = max(1, _TOGETHER // max(map(len, sentence.tokens.values())))
    for start in range(0, len(tokens), step):
        part = tokens[start : start + step]
        yield _hidden_each(reading, stack, part)


def _hidden_each(reading: SentenceReading, stack: str, part: list[int]) -> list[dict[str, Any]]:
    model = reading.subject.model
    column = torch.tensor(part)

    def hide(call: Any) -> Any:
        return without_token(call, column.to(call.value.device)) if keys_stack(call.stack, call.kind) == stack else None

    with torch.no_grad(), changed(model, reading.change), tap(model, hidden=True, on_attention=hide) as passed:
        output = model.module(**_repeated(reading, len(part)))
    rows = []
    for index, token in enumerate(part):
        change = reading.change
        blind = replace(change, hide=(*change.hide, (stack, token))).blind(model, reading.sentence)
        moved = {
            name: [
                _digits(row, [*blind[name], *([token] if name == stack else [])])
                for row in distances(states, torch.stack([layer[index] for layer in passed.hidden[name]]))
            ]
            for name, states in reading.states.items()
        }
        row: dict[str, Any] = {"stack": stack, "token": token, "moved": moved}
        last = [value for value in moved[model.anatomy.predicts.name][-1] if value is not None]
        row["distance"] = float(f"{sum(last) / len(last):.4g}") if last else None
        if reading.has_head:
            row["divergence"] = _mean_divergence(reading, token_logits(output)[index], blind)
        rows.append(row)
    return rows


def _mean_divergence(reading: SentenceReading, logits: Tensor, blind: dict[str, list[int]]) -> float | None:
    left_out = blind[reading.subject.model.anatomy.predicts.name]
    after = logits.float().log_softmax(-1)
    kept = [value for value in _digits(divergence(reading.log_shares, after), left_out) if value is not None]
    return float(f"{sum(kept) / len(kept):.4g}") if kept else None


def head_effects(reading: SentenceReading, mode: str = "zero") -> Iterator[list[dict[str, Any]]]:
    """The effect of ablating each head (with zero or its mean), one layer at a time: one row per head.

    The blocks below that of the head are not rerun.
    """
    model = reading.subject.model
    layers: dict[tuple[str, str, int], list[HeadSet]] = {}
    for head in all_heads(model.anatomy):
        layers.setdefault(head[:3], []).append(frozenset([head]))
    recorded = _record(reading)
    step = max(1, _TOGETHER // max(map(len, reading.sentence.tokens.values())))
    for variants in layers.values():
        for start in range(0, len(variants), step):
            yield _closed_each(reading, recorded, mode, variants[start : start + step])


def _record(reading: SentenceReading) -> BlockOutputs | None:
    model = reading.subject.model
    if any("self" not in layer.attentions for one in model.anatomy.stacks for layer in one.layers):
        return None
    with torch.no_grad(), changed(model, reading.change), recorded_blocks(model) as recorded:
        model.module(**reading.inputs)
    return recorded


def _closed_each(
    reading: SentenceReading, recorded: BlockOutputs | None, mode: str, variants: list[HeadSet]
) -> list[dict[str, Any]]:
    model, change = reading.subject.model, reading.change
    num, predicts = len(variants), model.anatomy.predicts.name
    (place,) = {head[:3] for heads in variants for head in heads}

    def replacement(call: HeadCall) -> Tensor:  # a row is one sentence without padding
        return call.heads.mean(dim=1, keepdim=True) if mode == "mean" else call.heads.new_zeros(())

    edit = HeadEdit(variants, replacement)
    with ExitStack() as stack:
        stack.enter_context(torch.no_grad())
        stack.enter_context(changed(model, change))
        if recorded is not None:
            stack.enter_context(skipped_blocks(model, recorded, *first_block(model, place[0], place[2]), num))
        passed = stack.enter_context(tap(model, hidden=True, on_heads=edit))
        output = model.module(**_repeated(reading, num))
    blind, last = change.blind(model, reading.sentence), passed.hidden[predicts][-1]
    rows = []
    for row, heads in enumerate(variants):
        (head,) = heads
        moved = [
            value
            for value in _digits(distances(reading.states[predicts][-1], last[row]), blind[predicts])
            if value is not None
        ]
        effect = {"distance": float(f"{sum(moved) / len(moved):.4g}") if moved else None}
        if reading.has_head:
            effect["divergence"] = _mean_divergence(reading, token_logits(output)[row], blind)
        rows.append({"stack": head[0], "kind": head[1], "layer": head[2], "head": head[3]} | effect)
    return rows


def _repeated(reading: SentenceReading, num: int) -> dict[str, Any]:
    return {
        name: value.repeat(num, 1) if isinstance(value, Tensor) else value for name, value in reading.inputs.items()
    }
