"""Heads by name: (stack, kind, layer, head)."""

from collections.abc import Iterable, Sequence

from infoflow.foundation import UserError, as_written
from infoflow.models import Anatomy, Model

Head = tuple[str, str, int, int]
"""(stack, kind, layer, head): ("encoder", "self", 0, 3), ("decoder", "cross", 5, 0); layers and heads from 0."""
HeadSet = frozenset[Head]
"""A set of heads, such as those that are closed together."""
Block = tuple[str, int]
"""(stack, layer): ("encoder", 0); layers from 0."""
BlockSet = frozenset[Block]


def all_heads(anatomy: Anatomy) -> list[Head]:
    """Every head in order: by stack, kind, layer, head."""
    return [(a.stack, a.kind, a.layer, head) for a in anatomy.attentions() for head in range(a.num_heads)]


def head_set(model: Model, heads: Iterable[Sequence[str | int]]) -> HeadSet:
    """The heads as a set, checked.

    Raises:
        UserError: The model has no such head.
    """
    known = {(a.stack, a.kind, a.layer): a.num_heads for a in model.anatomy.attentions()}
    chosen = set()
    for given in heads:
        head = tuple(given)
        if len(head) != 4 or head[:3] not in known or not 0 <= head[3] < known[head[:3]]:
            sites = {}
            for stack, kind, layer in known:
                sites[stack, kind] = max(layer, sites.get((stack, kind), 0))
            there = ", ".join(f"({as_written(s)}, {as_written(k)}, 0..{last}, head)" for (s, k), last in sites.items())
            raise UserError(
                f"heads must be heads of {model.name}, each as (stack, kind, layer, head): {there}, "
                f"with heads 0..{max(known.values()) - 1}. Got {as_written(list(given))}. "
                "Layers and heads count from 0."
            )
        chosen.add(head)
    return frozenset(chosen)
