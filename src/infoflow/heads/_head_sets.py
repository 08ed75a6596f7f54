"""Heads by name: (stack, kind, layer, head); and the choice of a trained model's specialised heads."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from infoflow.foundation import UserError, as_written, stream
from infoflow.models import Anatomy, Model

Head = tuple[str, str, int, int]
"""(stack, kind, layer, head): ("encoder", "self", 0, 3), ("decoder", "cross", 5, 0); layers and heads from 0."""
HeadSet = frozenset[Head]
"""A set of heads, such as those that are ablated together."""
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


@dataclass(frozen=True, kw_only=True, slots=True)
class HeadScore:
    """The data by which a head is chosen."""

    head: Head
    importance: float  # sensitivity of the loss to it
    roles: tuple[str, ...] = ()  # roles that it has, among those that count


def specialised_heads(scores: Iterable[HeadScore], num: int, choose: Sequence[str]) -> list[Head]:
    """At most `num` heads, the first choice first, and at most half of each layer's.

    | `choose` | heads |
    |---|---|
    | `("importance",)` | the most important ones |
    | `("roles",)` | those with a role, the most important first; there may be fewer |
    | `("roles", "importance")` | those with a role, then the most important of the others |

    Half of a layer's heads of each kind remain, so that the same number of others can be drawn (`drawn_heads`).
    """
    scores = list(scores)
    ranked = sorted(scores, key=lambda one: (-one.importance, one.head))
    by = {"roles": [one for one in ranked if one.roles], "importance": ranked}
    asked = list(dict.fromkeys(one.head for name in choose for one in by[name]))
    room = {site: sum(one.head[:3] == site for one in scores) // 2 for site in {one.head[:3] for one in scores}}
    chosen: list[Head] = []
    for head in asked:
        if len(chosen) < num and room[head[:3]]:
            chosen.append(head)
            room[head[:3]] -= 1
    return chosen


def drawn_heads(pool: Collection[Head], chosen: Collection[Head], draw: int, seed: int = 0) -> list[Head]:
    """Random heads, as many in every layer as were chosen there and disjoint from them, so that layers do not confound.

    Args:
        pool: All candidate heads.
        chosen: The chosen ones; at most half of each layer's.
        draw: Number of the draw.
        seed: Seed of the model.
    """
    drawn: list[Head] = []
    for site in sorted({head[:3] for head in chosen}):
        others = sorted(head for head in pool if head[:3] == site and head not in chosen)
        order = stream("drawn-heads", seed, draw, *site).permutation(len(others))
        num = sum(head[:3] == site for head in chosen)
        assert num <= len(others), "at most half of a layer's heads are chosen"
        drawn += sorted(others[index] for index in order[:num].tolist())
    return drawn
