"""Does position hide how layers change and how objectives come apart? Saved models, as in states.py.

    python experiments/studies/reasons/spaces.py runs/scale/w64-10M

On 20,000 tokens of a study's test sentences, the same for all models, as they are and less the mean state of each
position in the sentence:

| measure | objective | layer |
|---|---|---|
| change: 1 − PWCCA to the next layer | one | the lower of the two |
| apart: 1 − PWCCA of the same layer | two of one seed, "masked-lm–translation" | both |
| identity: of the 50 nearest tokens, those of the same type | one | each |

One row a model or pair, layer, measure and states in `spaces.csv`; seeds that are there are kept. `claims.py` reads it.
"""

from collections.abc import Iterator, Mapping
from itertools import combinations, pairwise
from typing import Any

import numpy as np
import torch
from states import HERE, Tokens, read_seeds, row, unplaced_states

from infoflow.representations import neighbour_agreement, pwcca

ROWS, NEIGHBOURS = 20_000, 50


def rows_of(models: Mapping[str, Tokens]) -> Iterator[dict[str, Any]]:
    """All of one seed."""
    ids = next(iter(models.values())).ids
    kept = np.random.default_rng(0).permutation(len(ids))[:ROWS]
    spaces: dict[tuple[str, str], list[torch.Tensor]] = {}
    for name, tokens in models.items():
        spaces[name, "raw"] = [layer[kept] for layer in tokens.states]
        spaces[name, "unplaced"] = [unplaced_states(layer, tokens.places)[kept] for layer in tokens.states]
    for (name, states), layers in spaces.items():
        for layer, (lower, upper) in enumerate(pairwise(layers)):
            yield {"objective": name, **row(layer, "change", states, "", 1 - pwcca(lower, upper))}
        for layer, space in enumerate(layers):
            value = neighbour_agreement(space, ids[kept], k=NEIGHBOURS)
            yield {"objective": name, **row(layer, "identity", states, "", value)}
    for states in ("raw", "unplaced"):
        for one, other in combinations(models, 2):
            for layer, (x, y) in enumerate(zip(spaces[one, states], spaces[other, states], strict=True)):
                yield {"objective": f"{one}–{other}", **row(layer, "apart", states, "", 1 - pwcca(x, y))}


if __name__ == "__main__":
    read_seeds(__doc__, HERE / "spaces.csv", rows_of)
