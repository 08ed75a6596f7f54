"""A model's prediction at each layer, as a few words with their probabilities."""

# L+1 states, P position, K candidate, V vocabulary

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from infoflow.foundation import UserError
from infoflow.heads import LayerGuesses, best_guesses, token_name
from infoflow.models import Model

from ._sentence_reading import SentenceReading

CANDIDATES = 10
_CHUNK = 1 << 25  # logits held at a time
_MOST_GUESSED = 1 << 24  # logits: BERT-base's of 42 tokens
_PART = 128  # of the vocabulary


def lens_rows(
    reading: SentenceReading, positions: Sequence[int] | None, candidates: int = CANDIDATES
) -> dict[str, Any]:
    r"""The most likely tokens of every layer, by `logit_lens`: the model's own head on the states of the reading.

    $$ p_l = \mathrm{softmax}\, r(h_l), \qquad l = 0..L $$

    Returns:
        Stack, positions, and for each position and layer a list of (token id, probability), most likely first; names of
        all these tokens by id.

    Raises:
        UserError: The model has no head, or there is no such position.
    """
    subject = reading.subject
    stack = subject.readout.stack.name
    states = reading.states[stack]
    chosen = list(range(states.shape[1])) if positions is None else list(positions)
    if not all(0 <= position < states.shape[1] for position in chosen):
        raise UserError(f"position must lie in 0..{states.shape[1] - 1}.")
    rows = states[:, chosen].flatten(0, 1)
    step = max(1, _CHUNK // subject.readout.vocabulary_size)
    with torch.no_grad():
        parts = [best(subject.readout(part).float().softmax(-1), candidates) for part in rows.split(step)]
    ids, shares = (
        torch.cat([part[side] for part in parts]).unflatten(0, (len(states), len(chosen))) for side in (0, 1)
    )
    table = [
        [pairs(ids[layer, place], shares[layer, place]) for layer in range(len(states))] for place in range(len(chosen))
    ]
    return {"stack": stack, "positions": chosen, "layers": table, "names": names(subject.model, ids)}


def best(shares: Float[Tensor, "row vocabulary"], candidates: int = CANDIDATES) -> tuple[Tensor, Tensor]:
    """Ids of the largest numbers of each row, and the numbers.

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


def pairs(ids: Tensor, shares: Tensor) -> list[tuple[int, float]]:
    """For JSON: probabilities have four significant digits."""
    return [(token, float(f"{share:.4g}")) for token, share in zip(ids.tolist(), shares.tolist(), strict=True)]


def names(model: Model, ids: Tensor) -> dict[int, str]:
    """Display names of predicted tokens."""
    return {token: token_name(model, token) for token in sorted(set(ids.flatten().tolist()))}


def add_guesses(reading: SentenceReading) -> None:
    """The most likely token of every layer and position, for the flow view.

    Left out if the head would have to run too often.
    """
    if not reading.has_head or reading.seen.guesses is not None:
        return
    try:
        head = reading.subject.readout
    except UserError:
        return
    states = reading.states[head.stack.name]
    if len(states) * states.shape[1] * head.vocabulary_size > _MOST_GUESSED:
        return
    with torch.no_grad():
        layers = tuple(best_guesses(reading.subject.model, head(state)) for state in states)
    reading.seen = replace(reading.seen, guesses=LayerGuesses(stack=head.stack.name, states=layers))
