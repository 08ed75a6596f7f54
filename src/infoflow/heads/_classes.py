"""Clark's classes of heads, from their surface statistics."""

import pandas as pd

KEYS = ["stack", "kind", "layer", "head"]


def head_classes(
    surface: pd.DataFrame, position: float = 0.5, broad: float = 1.05, special: float = 0.6
) -> pd.DataFrame:
    """The class of each head: next, previous, broad, cls, sep, punctuation, or "" for none of them.

    A head whose mean attention on the next or previous token exceeds `position` is positional; one whose mean entropy
    lies less than `broad` nats below that of uniform attention over the same keys is broad; one with more than
    `special` of its attention on CLS, SEP or punctuation belongs to that. Classes are assigned in the order given
    above, and a later one overrides an earlier one.

    Args:
        surface: The table `head_surface` of one model.
        position: Share of attention.
        broad: Nats. The authors' 3.8 of texts of 128 tokens, where uniform attention has ln 128 = 4.85: attention as
            on about a third of a sentence's keys, whatever its length.
        special: Share of attention.

    Returns:
        Columns stack, kind, layer, head, class.

    Source: [@clark2019], the authors' code.
    """
    surface = surface.assign(value=surface["value"].where(surface["statistic"] != "entropy", _below_uniform(surface)))
    values = surface.pivot_table(index=KEYS, columns="statistic", values="value", aggfunc="first")
    limits = {
        "next": ("next", position),
        "previous": ("previous", position),
        "broad": ("entropy", -broad),
        "cls": ("cls", special),
        "sep": ("sep", special),
        "punctuation": ("punctuation", special),
    }
    classes = pd.Series("", index=values.index, name="class", dtype="object")
    for name, (statistic, limit) in limits.items():
        if statistic in values.columns:
            classes[values[statistic] > limit] = name
    return classes.reset_index()


def _below_uniform(surface: pd.DataFrame) -> pd.Series:
    """Entropy less that of uniform attention, the table's baseline."""
    return surface["value"] - surface["baseline"]
