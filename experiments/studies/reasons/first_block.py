"""Why does the first block seem to add information about the token (V-1, V-4)? Two layers of causal LMs, read anew.

    python experiments/studies/reasons/first_block.py runs/scale/w512-1M \\
      --results experiments/studies/reasons/first_block-w512-1M.csv

For each causal LM of a study, on sentences of its test part: information about the token, nats, of 200 and 1,000
clusters of the states of layers 0 and 1, as they are (raw) and less the mean state of each position (unplaced), as
`states.py` does it; and the root mean square over dimensions of the table of positions and of the embeddings of the 500
most frequent tokens, each less its mean. Seeds that are there already are kept.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from states import Tokens, information_rows, read_seeds, row, unplaced_states
from torch import Tensor

OBJECTIVE = "causal-lm"
CLUSTERS = (200, 1000)
FREQUENT = 500


def rows_of(models: Mapping[str, Tokens]) -> Iterator[dict[str, Any]]:
    for each in _rows(models[OBJECTIVE]):
        yield {"objective": OBJECTIVE, **each}


def _rows(tokens: Tokens) -> Iterator[dict[str, Any]]:
    for layer in (0, 1):
        raw = tokens.states[layer]
        read = {"raw": raw, "unplaced": unplaced_states(raw, tokens.places)}
        yield from information_rows(tokens, layer, read, CLUSTERS)
    embeddings = tokens.base.embeddings
    places = embeddings.position_embeddings.weight[: int(tokens.places.max()) + 3]  # [CLS] and [SEP] too
    words = embeddings.word_embeddings.weight[tokens.by_frequency()[:FREQUENT]]
    for name, table in {"positions": places, "words": words}.items():
        yield row(0, "spread", name, "", _spread(table))


def _spread(table: Tensor) -> float:
    return float((table - table.mean(0)).square().mean().sqrt())


if __name__ == "__main__":
    read_seeds(__doc__, None, rows_of, (OBJECTIVE,))
