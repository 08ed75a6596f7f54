"""What a model would predict at each layer of one sentence, by the logit lens."""

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from infoflow.corpus import printable
from infoflow.foundation import UserError
from infoflow.models import Model, Readout, readout, tap

from ._sentence_attention import sentence_inputs
from ._sentence_tokens import ReadSentence

CANDIDATES = 10
_FEWER = 5  # candidates in a file
_CHUNK = 1 << 25  # logits held at a time
_PART = 128  # tokens in a part of the vocabulary


def lens_logits(
    model: Model, read: ReadSentence, positions: Sequence[int] | None = None
) -> Iterator[Float[Tensor, "token vocabulary"]]:
    """Logits of the model's output head for states 0..L of one sentence (`logit_lens`), or at some positions only."""
    head = readout(model)
    for states in _states(model, read, head):
        with torch.no_grad():
            yield head(states if positions is None else states[list(positions)])


def _states(model: Model, read: ReadSentence, head: Readout) -> list[Float[Tensor, "token width"]]:
    """The states 0..L of the predicting stack."""
    with torch.no_grad(), tap(model, hidden=True) as seen:
        model.module(**sentence_inputs(model, read))
    return [states[0] for states in seen.hidden[head.stack.name]]


def sentence_lens(model: Model, read: ReadSentence) -> dict[str, Any]:
    """`lens_rows` of a whole sentence."""
    head = readout(model)
    return lens_rows(model, head, torch.stack(_states(model, read, head)), None, _FEWER)


def lens_rows(
    model: Model,
    head: Readout,
    states: Float[Tensor, "layer token width"],
    positions: Sequence[int] | None,
    candidates: int = CANDIDATES,
) -> dict[str, Any]:
    r"""The most likely tokens of every layer, by `logit_lens`: the model's output head reads a sentence's states.

    $$ p_l = \mathrm{softmax}\, r(h_l), \qquad l = 0..L $$

    Returns:
        Stack, positions, for each position and layer a list of (token id, probability) with the most likely first, and
        the names of all these tokens by id.
    """
    chosen = list(range(states.shape[1])) if positions is None else list(positions)
    if not all(0 <= position < states.shape[1] for position in chosen):
        raise UserError(f"position must lie in 0..{states.shape[1] - 1}. Got {', '.join(map(str, chosen))}.")
    rows = states[:, chosen].flatten(0, 1)
    step = max(1, _CHUNK // head.vocabulary_size)
    with torch.no_grad():
        parts = [likeliest(head(part).float().softmax(-1), candidates) for part in rows.split(step)]
    ids, shares = (
        torch.cat([part[side] for part in parts]).unflatten(0, (len(states), len(chosen))) for side in (0, 1)
    )
    table = [
        [candidate_pairs(ids[layer, index], shares[layer, index]) for layer in range(len(states))]
        for index in range(len(chosen))
    ]
    return {"stack": head.stack.name, "positions": chosen, "layers": table, "names": token_names(model, ids)}


def likeliest(shares: Float[Tensor, "row vocabulary"], candidates: int = CANDIDATES) -> tuple[Tensor, Tensor]:
    """The largest numbers of each row: their ids, and the numbers themselves.

    The k largest are in the k parts with the largest maxima: checking only these takes a fifth of `topk`'s time.
    """
    most = min(candidates, shares.shape[-1])
    num = shares.shape[-1] // _PART
    if num <= most:
        found, ids = shares.topk(most, dim=-1)
        return ids, found
    parts = shares[:, : num * _PART].unflatten(1, (num, _PART))
    chosen = parts.amax(dim=2).topk(most, dim=1).indices
    inside = parts.gather(1, chosen.unsqueeze(2).expand(-1, -1, _PART)).flatten(1)
    rest = torch.arange(num * _PART, shares.shape[-1], device=shares.device).expand(len(shares), -1)
    places = chosen.unsqueeze(2) * _PART + torch.arange(_PART, device=shares.device)
    found, where = torch.cat([inside, shares.gather(1, rest)], dim=1).topk(most, dim=1)
    return torch.cat([places.flatten(1), rest], dim=1).gather(1, where), found


def candidate_pairs(ids: Tensor, shares: Tensor) -> list[tuple[int, float]]:
    """(token id, probability) pairs for JSON, with four significant digits."""
    return [(token, float(f"{share:.4g}")) for token, share in zip(ids.tolist(), shares.tolist(), strict=True)]


def token_names(model: Model, ids: Tensor) -> dict[int, str]:
    """Display names of predicted tokens."""
    return {token: token_name(model, token) for token in sorted(set(ids.flatten().tolist()))}


def token_name(model: Model, token: int) -> str:
    """A predicted token in readable form: its text, or its tokenizer's name for it, or else its number."""
    tokenizer = model.output_tokenizer
    if tokenizer is None or token >= len(tokenizer):
        return str(token)
    # Byte-level names such as `ĠcafÃ©` are unreadable, and some tokens are not text.
    text = printable(str(tokenizer.decode([token]))).strip()
    if text and "\ufffd" not in text:
        return text
    name = tokenizer.convert_ids_to_tokens(token)
    return (printable(str(name)).strip() or str(token)) if name is not None else str(token)
