"""Does position hide how layers change and how objectives come apart? Saved models, as in states.py.

    python experiments/reasons/spaces.py runs/scale/w64-10M

On 20,000 tokens of a study's test sentences, the same for all models, as they are and less the mean state of each
position in the sentence:

| measure | objective | layer |
|---|---|---|
| change: 1 − PWCCA to the next layer | one | the lower of the two |
| apart: 1 − PWCCA of the same layer | two of one seed, "masked-lm–translation" | both |
| identity: of the 50 nearest tokens, those of the same type | one | each |

One row a model or pair, layer, measure and states in `spaces.csv`; seeds that are there are kept. `claims.py` reads it.
"""

import argparse
from collections.abc import Iterator, Mapping
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from states import HERE, OBJECTIVES, Tokens, of_study, row, unplaced_states

from infoflow.foundation import atomic_write, set_threads
from infoflow.representations import neighbour_agreement, pwcca
from infoflow.studies import at_most

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


@torch.no_grad()
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--architecture", default="plain-bert")
    parser.add_argument("--sentences", type=int, default=6000)
    parser.add_argument("--results", type=Path, default=HERE / "spaces.csv")
    options = parser.parse_args()
    set_threads(1)
    done = pd.read_csv(options.results, keep_default_na=False) if options.results.exists() else pd.DataFrame()
    folders = (options.run / "models" / f"{OBJECTIVES[0]}-on-{options.architecture}").glob("seed-*")
    for seed in sorted(int(folder.name.removeprefix("seed-")) for folder in folders):
        if len(done) and (done["seed"] == seed).any():
            continue
        models = {}
        for objective in OBJECTIVES:
            model, data = of_study(options.run, f"{objective}-on-{options.architecture}/seed-{seed}")
            models[objective] = Tokens(model, list(at_most(data.test, options.sentences).column("text")))
        new = pd.DataFrame({"seed": seed, **each} for each in rows_of(models))
        done = pd.concat([done, new[["objective", *new.columns.drop("objective")]]], ignore_index=True)
        with atomic_write(options.results) as temporary:
            done.to_csv(temporary, index=False, float_format="%.5g")
        print(seed, len(new), flush=True)


if __name__ == "__main__":
    main()
