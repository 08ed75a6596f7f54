"""How far tuning moved the weights of each block and component."""

from collections.abc import Sequence

import pandas as pd
import torch
from torch import Tensor

from infoflow.models import Model

from ._body import BodyGroup, began_as, body_groups, body_parameters
from ._seeds import without_tuned
from ._tables import TUNING_WEIGHTS

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
