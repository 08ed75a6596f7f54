"""The route of one sentence, for the pages of `infoflow view` and `infoflow explore`."""

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from infoflow.heads import ReadSentence
from infoflow.models import Model

from .measures._route import FEED_FORWARD, HEAD, RESIDUAL, sentence_shares
from .measures._shares import BlockShares

_LEAST = 0.01  # importance of the faintest edge on the page
_PARTS = (HEAD, FEED_FORWARD, RESIDUAL)


def route_answer(model: Model, read: ReadSentence, choices: Mapping[str, str]) -> dict[str, Any]:
    """All edges of a sentence with an importance of at least .01, for `templates/route_view.js`.

    | key | content |
    |---|---|
    | `top` | the stack that predicts |
    | `rows` | by stack: `[layer, sublayer]` of each row of nodes above the input |
    | `edges` | `[stack, row, part, head, token, source, importance]` of each edge: number of the stack in `rows`; row
      from 0; 0 head, 1 feed-forward block, 2 residual; head, 0 for other parts; importance in thousandths |

    Raises:
        UserError: The model's blocks are not sums of their parts.
    """
    rows: dict[str, list[tuple[int, str]]] = {stack: [] for stack in read.tokens}
    edges: list[list[int]] = []
    stacks = list(rows)
    for block in sentence_shares(model, read):
        for sublayer, part, shares in _edges(block):
            if (block.layer, sublayer) not in rows[block.stack]:
                rows[block.stack].append((block.layer, sublayer))
            place = [stacks.index(block.stack), len(rows[block.stack]) - 1, _PARTS.index(part)]
            edges += [[*place, *found] for found in _listed(shares)]
    return {"top": model.anatomy.predicts.name, "rows": rows, "edges": edges}


def _edges(block: BlockShares) -> Iterator[tuple[str, str, Tensor]]:
    """Sublayer, part and importance (head, token, source) of all edges."""
    for attention in block.attentions:
        visible = attention.visible[0].unsqueeze(0)
        yield attention.site.kind, HEAD, attention.heads[0].where(visible, 0)
        yield attention.site.kind, RESIDUAL, torch.diag(attention.residual[0]).unsqueeze(0)
    feed = block.feed_forward[0]
    yield FEED_FORWARD, FEED_FORWARD, torch.diag(feed).unsqueeze(0)
    yield FEED_FORWARD, RESIDUAL, torch.diag(1 - feed).unsqueeze(0)


def _listed(shares: Tensor) -> list[list[int]]:
    places = (shares >= _LEAST).nonzero()
    thousandths = (1000 * shares[tuple(places.T)]).round().long().unsqueeze(1)
    return torch.cat([places, thousandths], dim=1).tolist()


ANSWERS = {"route": route_answer}
