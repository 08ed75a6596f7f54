"""How far tuning moved each layer's representations, and the weights of each block and component."""

# leave_out: all words, then all but those of each group of bootstrap blocks

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor

from infoflow.corpus import Corpus
from infoflow.flow import PassOptions
from infoflow.foundation import UserError, current_display
from infoflow.models import Model
from infoflow.representations import (
    BlockGroups,
    ItemPairs,
    LayerPair,
    LayerSpace,
    RankedSpace,
    centred_ranks,
    space_values,
    warn_few_rows,
)
from infoflow.results import estimate

from ._body import BodyGroup, began_as, body_groups, body_parameters
from ._states import Places, States, read_states, without_tuned
from ._tables import TUNING_CHANGE, TUNING_WEIGHTS
from ._task import AbstractTask
from ._task_parts import TaskPart

# How far tuning moved each layer's representations.


_SPACES = {"pwcca": "pwcca", "cka": "cka_debiased"}  # names in SpaceSimilarity
_LEAST_WORDS = 4  # the debiased CKA divides by this minus 3
_LEAST_FOR_PWCCA = 2  # words per dimension: below that, any two spaces share directions
Layer = LayerSpace | RankedSpace


def tuning_change(
    before: Model,
    after: Sequence[Model],
    task: AbstractTask,
    corpus: Corpus,
    options: PassOptions | None = None,
    *,
    words: int = 3000,
    items: int = 600,
) -> pd.DataFrame:
    r"""The table `TUNING_CHANGE` without the columns of `TUNED`.

    $$ d_l = 1 - \frac{1}{S} \sum_s \mathrm{sim}(X_l, Y^s_l), \qquad
       \mathrm{baseline}_l = 1 - \binom{S}{2}^{-1} \sum_{s < u} \mathrm{sim}(Y^s_l, Y^u_l) $$

    X are the states of some words of the examples before tuning, Y those after tuning with seed s; sim is PWCCA,
    debiased linear CKA, or the rank correlation of the cosine distances between words (RSA). All models read the task's
    input (pairs as pairs), and the same words. The effect of tuning is the distance beyond the baseline, which is the
    distance between seeds; the baseline is NaN with one seed. Intervals leave out sentences, as `SpaceSimilarity` does.
    PWCCA is left out with two words per dimension or fewer.

    Args:
        before: The pretrained model.
        after: The models tuned from it, one for each seed.
        task: The task that they were tuned on.
        corpus: The test part.
        options: Seed, maximum length, batch size.
        words: Maximum number of text tokens, chosen by hash; PWCCA needs ten per dimension, better twenty; with fewer
            it is biased towards similarity, with a warning.
        items: Number of these words for RSA.

    Raises:
        UserError: The models have different bodies, or there are fewer than 4 words.

    Source: [@morcos2018], [@kornblith2019], [@kriegeskorte2008]; comparison of tuned and pretrained models:
    [@merchant2020].
    """
    start = began_as(before, after)
    places = Places(TaskPart(task, corpus, start, options or PassOptions()), words, tags=False)
    return change_table(places, read_states(start, places), [read_states(one, places) for one in after], items)


def change_table(places: Places, before: States, after: Sequence[States], items: int) -> pd.DataFrame:
    """The table from states that were read before."""
    rows = []
    for stack, first in before.words.items():
        if len(first) < _LEAST_WORDS:
            raise UserError(
                f"Similarity of spaces needs at least {_LEAST_WORDS} words. The {stack} reads {len(first)} in "
                f"{places.part.corpus.name}: use more examples."
            )
        measures = _measures(len(first), first.shape[-1])
        others = [one.words[stack] for one in after]
        for layer in range(first.shape[1]):
            states = [first[:, layer], *(other[:, layer] for other in others)]
            found = _distances(states, places.blocks[stack], items, measures)
            rows += [{"stack": stack, "layer": layer, **row} for row in found]
    schema = without_tuned(TUNING_CHANGE)
    return schema.conform(pd.DataFrame(rows, columns=schema.column_names))


def _measures(words: int, width: int) -> dict[str, str]:
    """The similarity measures that this many words support."""
    if words > _LEAST_FOR_PWCCA * width:
        warn_few_rows(words, width)
        return _SPACES
    current_display().warn(
        f"PWCCA before and after tuning is left out: it needs more than {_LEAST_FOR_PWCCA * width} words in {width} "
        f"dimensions, and there are {words}. Use more examples."
    )
    return {name: metric for name, metric in _SPACES.items() if name != "pwcca"}


def _distances(
    states: Sequence[Float[np.ndarray, "word width"]], blocks: np.ndarray, items: int, measures: Mapping[str, str]
) -> Iterator[dict[str, Any]]:
    """Rows of one layer: its states before, then those after with each seed."""
    groups = BlockGroups.of(blocks, states[0].shape[1])
    spaces = [LayerSpace(one, groups) for one in states]
    for measure, metric in measures.items():
        values = [space_values(metric, LayerPair.of(spaces[0], one)) for one in spaces[1:]]
        between = [_alone(metric, x, y) for x, y in combinations(spaces[1:], 2)]
        yield {"measure": measure, **_estimate(np.mean(values, axis=0), between, groups)}
    few = np.linspace(0, len(blocks) - 1, min(items, len(blocks))).round().astype(int)
    pairs = ItemPairs(BlockGroups.of(blocks[few], states[0].shape[1]))
    order = few[pairs.groups.order.numpy()]
    ranked = [RankedSpace(centred_ranks(one[order], "cosine"), pairs) for one in states]
    between = [x.correlation(y) for x, y in combinations(ranked[1:], 2)]
    yield {
        "measure": "rsa",
        **_estimate(np.mean([ranked[0].values(one) for one in ranked[1:]], axis=0), between, pairs.groups),
    }


def _alone(metric: str, x: LayerSpace, y: LayerSpace) -> float:
    """The similarity of all rows; words in their own order, so that no group is left out."""
    return float(space_values(metric, LayerPair.shuffled(x, y, torch.arange(len(x.squares))))[0])


def _estimate(
    similarities: Float[np.ndarray, " leave_out"], between: Sequence[float], groups: BlockGroups
) -> dict[str, Any]:
    values = 1 - similarities
    baseline = 1 - float(np.mean(between)) if between else float("nan")
    ends = groups.interval(float(values[0]), values)
    return estimate(float(values[0]), groups.replicates(values).round(5), baseline, len(groups.order), ends=ends)


# How far tuning moved the weights of each block and component.


Key = tuple[str, int, str]


def tuning_weights(before: Model, after: Sequence[Model], seeds: Sequence[int] | None = None) -> pd.DataFrame:
    r"""The table `TUNING_WEIGHTS` without the columns of `TUNED`: one row per component of each block and seed.

    $$ \frac{\lVert θ' - θ \rVert}{\lVert θ \rVert}, \qquad
       \frac{\langle θ', θ \rangle}{\lVert θ' \rVert \lVert θ \rVert} $$

    θ are all weights and biases of the component before tuning, θ' after it. Heads and poolers, which tuning
    initialises, are left out; NaN if all weights are 0.

    Args:
        before: The pretrained model.
        after: The models tuned from it.
        seeds: Their tuning seeds; default: 0, 1, ...

    Raises:
        UserError: The models have different bodies.
    """
    rows, start = [], began_as(before, after)
    for seed, one in zip(range(len(after)) if seeds is None else seeds, after, strict=True):
        weights = [body_parameters(model) for model in (start, one)]
        for (stack, layer, component), members in _by_component(start).items():
            then, now = (_together(members, each) for each in weights)
            norm, moved = float(then.norm()), float((now - then).norm())
            both = norm * float(now.norm())
            rows.append(
                {
                    "tuning_seed": seed,
                    "stack": stack,
                    "layer": layer,
                    "component": component,
                    "parameters": len(then),
                    "relative": moved / norm if norm else float("nan"),
                    "cosine": float(now @ then) / both if both else float("nan"),
                }
            )
    schema = without_tuned(TUNING_WEIGHTS)
    return schema.conform(pd.DataFrame(rows, columns=schema.column_names))


def _by_component(model: Model) -> dict[Key, list[BodyGroup]]:
    found: dict[Key, list[BodyGroup]] = {}
    for one in body_groups(model):
        found.setdefault((one.group.stack or "", one.layer, one.component), []).append(one)
    return found


def _together(members: Sequence[BodyGroup], weights: dict[str, torch.nn.Parameter]) -> Tensor:
    """All weights of the members as one vector, float64."""
    parts = [one.group.slice.take(weights[one.name].detach()).flatten() for one in members]
    return torch.cat(parts).double().cpu()
