"""What an objective makes of one example, as readable tokens: the inputs of its model and the targets of its loss."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor

from ._batch import UNSUPERVISED

NO_TARGET = "·"
"""Shown at positions that the loss ignores."""
DESCRIBING = ("segments", "positions", "attends to")
"""Names of lines that describe the tokens of the line before them, position by position."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Shown:
    """What an objective makes of one example: lines of readable tokens, by name."""

    inputs: Mapping[str, Sequence[str]]  # what the model reads
    targets: Mapping[str, Sequence[str]]  # by the loss term that they belong to


def tokens_of(ids: Tensor, names: Sequence[str]) -> list[str]:
    """The name of each id of one example; `NO_TARGET` for labels that the loss ignores."""
    return [NO_TARGET if id == UNSUPERVISED else names[id] for id in ids.flatten().tolist()]


def stacks(lines: Mapping[str, Sequence[str]]) -> list[dict[str, Sequence[str]]]:
    """Each line together with those that describe its tokens."""
    found: list[dict[str, Sequence[str]]] = []
    for name, tokens in lines.items():
        if found and name in DESCRIBING:
            found[-1][name] = tokens
        else:
            found.append({name: tokens})
    return found
