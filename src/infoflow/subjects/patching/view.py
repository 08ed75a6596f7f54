"""Swap parts of a model between two sentences, for the page of `infoflow explore`."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from infoflow.foundation import UserError
from infoflow.heads import ReadSentence, ReadToken, read_tokens, token_name
from infoflow.models import Model

from .measures import PatchPair
from .measures._encoded import EncodedPair, PairBatch, batches
from .measures._parts import ATTENTION, FEED_FORWARD, HEAD, RESIDUAL, Part, parts_of, token_parts
from .measures._runs import PairRuns, Recorded

_KINDS = {"heads": (HEAD,), "blocks": (ATTENTION, FEED_FORWARD), "states": (RESIDUAL,)}
_BUDGET = 4096  # tokens in one pass
_OFFERED = 8  # answers


def swap_answer(model: Model, read: ReadSentence, choices: Mapping[str, str]) -> dict[str, Any]:
    r"""The exact effect of each part of one kind on a prediction, for `templates/swap_view.js`.

    $$ e(z) = \frac{m(x \mid z \leftarrow z(x')) - m(x)}{m(x') - m(x)} $$

    where $x$ is the sentence that gets values, $x'$ the other one, and $m$ the logit of one token minus that of
    another. By default these are the tokens whose probability differs most between the sentences, one per direction.

    | choice | content |
    |---|---|
    | `other` | the other sentence, of as many tokens |
    | `part` | `heads`, `blocks` (attention, feed-forward) or `states` (at each token) |
    | `into` | `first`: the sentence of the page gets values of the other one; `second`: reversed |
    | `at` | token whose prediction is compared, in the stack that predicts |
    | `answer`, `wrong` | ids of the two tokens |

    | key | content |
    |---|---|
    | `tokens` | tokens of the other sentence |
    | `chosen` | the two tokens: `[id, name]` |
    | `offered` | for each of the two: `[id, name, its probability in the first sentence, in the second]` |
    | `metrics` | $m$ of the first and the second sentence, in nats |
    | `grids` | stack, kind of attention, `columns`, and for each layer `effects` and `metrics` with the part swapped |

    Raises:
        UserError: The model predicts no token, or the sentences do not differ in single tokens.
    """
    other, kind = choices.get("other", "").strip(), choices.get("part", "heads")
    if model.task == "encoder":
        raise UserError(f"{model.name} has no language-model head, so no prediction can be compared.")
    if not other:
        raise UserError("Write the other sentence, with as many tokens.")
    if kind not in _KINDS:
        raise UserError(f"part must be one of {', '.join(_KINDS)}.")
    runs, batch, tokens = PairRuns(model=model, budget=_BUDGET), *_encoded(model, read, other, choices.get("at"))
    parts = token_parts(model, batch) if kind == "states" else parts_of(model, _KINDS[kind])
    sides = runs.sides(batch, parts)
    before, after = (side.logits[0].float().softmax(0) for side in sides)
    gained, lost = (
        (one - two).topk(min(_OFFERED, len(one))).indices for one, two in ((before, after), (after, before))
    )
    answer, wrong = (
        _token(choices.get(name), best, len(before)) for name, best in (("answer", gained), ("wrong", lost))
    )
    batch = replace(batch, answer=torch.tensor([answer]), wrong=torch.tensor([wrong]))
    first, second = (replace(side, metric=batch.metric(side.logits)) for side in sides)
    base, donor = (second, first) if choices.get("into") == "second" else (first, second)
    swapped = runs.swapped(batch, base, [[part] for part in parts], donor.values)[:, 0].numpy()
    return {
        "tokens": [{"text": token.text, "special": token.special} for token in tokens],
        "chosen": [[token, token_name(model, token)] for token in (answer, wrong)],
        "offered": [_offered(model, ids, before, after) for ids in (gained, lost)],
        "metrics": [round(_metric(side), 4) for side in (first, second)],
        "grids": _grids(parts, swapped, _metric(base), _metric(donor)),
    }


def _encoded(model: Model, read: ReadSentence, other: str, at: str | None) -> tuple[PairBatch, tuple[ReadToken, ...]]:
    """Both sentences as a batch of one pair, and the tokens of the second sentence."""
    if read.pair is not None:
        raise UserError("Patching compares two single sentences, not pairs. Clear the field of the second sentence.")
    (stack, tokens), *written = read.tokens.items()
    others = read_tokens(model, other, read.translation).tokens[stack]
    if len(tokens) != len(others):
        shown = " | ".join(token.text for token in others)
        raise UserError(
            f"Both sentences need the same number of tokens. The first has {len(tokens)}, the other {len(others)}: "
            f"{shown}. Add or remove words."
        )
    clean, corrupted = ([token.id for token in side] for side in (tokens, others))
    if clean == corrupted:
        raise UserError("The two sentences have the same tokens, so no part differs. Change a word.")
    last = list(read.tokens.values())[-1]
    place = int(at) if at and at.isdecimal() else len(last) - 1
    if place >= len(last):
        raise UserError(f"at must lie in 0..{len(last) - 1}.")
    one = EncodedPair(
        pair=PatchPair(clean=read.text, corrupted=other, answer=""),
        clean=clean,
        corrupted=corrupted,
        place=place,
        answer=0,
        wrong=0,
        written=tuple(token.id for _, side in written for token in side),
    )
    return next(batches(model, [one], _BUDGET)), others


def _token(given: str | None, best: Tensor, vocabulary: int) -> int:
    token = int(given) if given and given.isdecimal() else int(best[0])
    if token >= vocabulary:
        raise UserError(f"A token must be an id in 0..{vocabulary - 1}.")
    return token


def _offered(model: Model, ids: Tensor, before: Tensor, after: Tensor) -> list[list[Any]]:
    return [
        [token, token_name(model, token), *(float(f"{side[token]:.4g}") for side in (before, after))]
        for token in ids.tolist()
    ]


def _metric(side: Recorded) -> float:
    return float(side.metric[0])


def _grids(parts: Sequence[Part], swapped: np.ndarray, base: float, donor: float) -> list[dict[str, Any]]:
    """One grid for each stack and kind of attention, with a row of numbers for each layer."""
    grids: dict[tuple[str, str], dict[int, dict[str, float]]] = {}
    for part, metric in zip(parts, swapped.tolist(), strict=True):
        kind = part.kind if part.name == HEAD else ""
        column = str(part.head) if part.name == HEAD else part.position if part.name == RESIDUAL else part.kind
        grids.setdefault((part.stack, kind), {}).setdefault(part.layer, {})[column or FEED_FORWARD] = metric
    found = []
    for (stack, kind), layers in grids.items():
        columns = list(dict.fromkeys(column for row in layers.values() for column in row))
        rows = []
        for layer, row in layers.items():
            metrics = [row.get(column) for column in columns]
            effects = [None if one is None or base == donor else (one - base) / (donor - base) for one in metrics]
            rows.append({"layer": layer, "effects": _digits(effects), "metrics": _digits(metrics)})
        found.append({"stack": stack, "kind": kind, "columns": columns, "rows": rows})
    return found


def _digits(values: Sequence[float | None]) -> list[float | None]:
    return [None if value is None else round(value, 4) for value in values]


ANSWERS = {"swap": swap_answer}
