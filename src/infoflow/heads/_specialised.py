"""Which heads of a trained model are its specialised ones, and which others stand in for them at random."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from infoflow.foundation import stream

from ._head_sets import Head


@dataclass(frozen=True, kw_only=True, slots=True)
class HeadScore:
    """What a head is chosen by."""

    head: Head
    importance: float  # how much the loss depends on it
    roles: tuple[str, ...] = ()  # that it holds, of those that count


def specialised_heads(scores: Iterable[HeadScore], num: int, choose: Sequence[str]) -> list[Head]:
    """At most `num` heads, the first choice first, and at most half of each layer's.

    | `choose` | heads |
    |---|---|
    | `("importance",)` | the most important ones |
    | `("roles",)` | those with a role, the most important first; there may be fewer |
    | `("roles", "importance")` | those with a role, then the most important of the others |

    Half of a layer's heads of each kind stay, so that as many others can be drawn from them (`drawn_heads`).
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
    """As many heads at random in every layer as were chosen there, none of them chosen: layers do not confound.

    Args:
        pool: All heads that might have been chosen.
        chosen: Those that were; at most half of each layer's.
        draw: Number of the draw.
        seed: Of the model.
    """
    drawn: list[Head] = []
    for site in sorted({head[:3] for head in chosen}):
        others = sorted(head for head in pool if head[:3] == site and head not in chosen)
        order = stream("drawn-heads", seed, draw, *site).permutation(len(others))
        num = sum(head[:3] == site for head in chosen)
        assert num <= len(others), "at most half of a layer's heads are chosen"
        drawn += sorted(others[index] for index in order[:num].tolist())
    return drawn
