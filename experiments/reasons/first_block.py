"""Why does the first block seem to add information about the token (V-1, V-4)? Two layers of causal LMs, read anew.

    python experiments/reasons/first_block.py runs/scale/w512-1M --results experiments/reasons/first_block-w512-1M.csv

For each causal LM of a study, on sentences of its test part: information about the token, nats, of 200 and 1,000
clusters of the states of layers 0 and 1, as they are (raw) and less the mean state of each position (unplaced), as
`states.py` does it; and the root mean square over dimensions of the table of positions and of the embeddings of the 500
most frequent tokens, each less its mean.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from states import TYPES, Tokens, of_study, row, unplaced_states
from torch import Tensor

from infoflow.foundation import atomic_write, set_threads
from infoflow.representations import discretize, mutual_information
from infoflow.studies import at_most

CLUSTERS = (200, 1000)
FREQUENT = 500


def rows_of(tokens: Tokens) -> Iterator[dict[str, Any]]:
    kinds, counts = np.unique(tokens.ids, return_counts=True)
    kinds = kinds[np.argsort(-counts, kind="stable")]
    frequent = np.isin(tokens.ids, kinds[:TYPES])
    for layer in (0, 1):
        raw = tokens.states[layer]
        for name, states in {"raw": raw, "unplaced": unplaced_states(raw, tokens.places)}.items():
            for clusters in CLUSTERS:
                found = discretize(states[frequent], clusters, seed=0).numpy()
                value = mutual_information(found, tokens.ids[frequent], "chao-wang-jost")
                yield row(layer, "information", name, f"{clusters} clusters", value)
    embeddings = tokens.base.embeddings
    places = embeddings.position_embeddings.weight[: int(tokens.places.max()) + 3]  # [CLS] and [SEP] too
    for name, table in {"positions": places, "words": embeddings.word_embeddings.weight[kinds[:FREQUENT]]}.items():
        yield row(0, "spread", name, "", _spread(table))


def _spread(table: Tensor) -> float:
    return float((table - table.mean(0)).square().mean().sqrt())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--architecture", default="plain-bert")
    parser.add_argument("--sentences", type=int, default=6000)
    parser.add_argument("--results", type=Path, required=True)
    options = parser.parse_args()
    set_threads(1)
    name, rows = f"causal-lm-on-{options.architecture}", []
    for folder in sorted((options.run / "models" / name).glob("seed-*")):
        model, data = of_study(options.run, f"{name}/{folder.name}")
        with torch.inference_mode():
            tokens = Tokens(model, list(at_most(data.test, options.sentences).column("text")))
            seed = int(folder.name.removeprefix("seed-"))
            rows += [{"model": "causal-lm", "seed": seed, **one} for one in rows_of(tokens)]
        print(folder.name, flush=True)
    with atomic_write(options.results) as temporary:
        pd.DataFrame(rows).to_csv(temporary, index=False, float_format="%.5g")


if __name__ == "__main__":
    main()
