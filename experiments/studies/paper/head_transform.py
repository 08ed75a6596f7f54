"""What the head of a language model does before its logits: BERT's transform, looked at as if it were one layer more.

    python experiments/studies/paper/head_transform.py runs/paper --corpus europarl/enfr.test.en.gz

The published models have no such transform: what their last layers do, BERT's may leave to it. For each causal and
masked LM of a study, on up to `--tokens` tokens of text: the change from each state to the next (1 − PWCCA), the mean
cosine of random tokens, how often the 50 nearest neighbours are the same token, and what 200 clusters know of the
token read. Layer 0 are the embeddings, the last one is the transform's output. Writes `head_transform.csv`.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from infoflow import Corpus, load_corpus, load_model
from infoflow.foundation import atomic_write, set_threads
from infoflow.models import Model
from infoflow.representations import average_similarity, discretize, mutual_information, neighbour_agreement, pwcca

HERE = Path(__file__).parent
NEIGHBOURS, CLUSTERS, TYPES = 50, 200, 1000


@torch.no_grad()
def states_of(model: Model, corpus: Corpus, tokens: int) -> tuple[list[Tensor], np.ndarray]:
    """States of each layer and of the transform, and the tokens; [CLS] and [SEP] are left out."""
    module: Any = model.module
    tokenizer: Any = model.tokenizer  # a study's models have one
    layers: list[list[Tensor]] = []
    ids: list[int] = []
    for text in corpus.column("text"):
        read = tokenizer(text, return_tensors="pt", truncation=True, max_length=128)["input_ids"]
        hidden = module.base_model(input_ids=read, output_hidden_states=True).hidden_states
        seen = [*hidden, module.cls.predictions.transform(hidden[-1])]
        layers = layers or [[] for _ in seen]
        for kept, state in zip(layers, seen, strict=True):
            kept.append(state[0, 1:-1])
        ids += read[0, 1:-1].tolist()
        if len(ids) >= tokens:
            break
    return [torch.cat(kept) for kept in layers], np.array(ids)


def rows_of(states: list[Tensor], ids: np.ndarray) -> Iterator[dict[str, Any]]:
    kinds, counts = np.unique(ids, return_counts=True)
    frequent = np.isin(ids, kinds[np.argsort(-counts)[:TYPES]])
    drawn = np.random.default_rng(0).permutation(len(ids))[:5000]
    for layer, state in enumerate(states):
        clusters = discretize(state[frequent], CLUSTERS, seed=0).numpy()
        found = {
            "similarity": average_similarity(state[drawn]),
            "identity": neighbour_agreement(state, ids, NEIGHBOURS),
            "information": mutual_information(clusters, ids[frequent], "chao-wang-jost"),
        }
        if layer:
            found["change"] = 1 - pwcca(states[layer - 1], state)
        yield from ({"layer": layer, "measure": name, "value": value} for name, value in found.items())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--corpus", required=True)
    parser.add_argument("--tokens", type=int, default=20_000)
    parser.add_argument("--results", type=Path, default=HERE)
    options = parser.parse_args()
    set_threads(1)
    corpus, rows = load_corpus(options.corpus), []
    for objective in ("causal-lm", "masked-lm"):
        for folder in sorted((options.run / "models" / objective).glob("seed-*")):
            states, ids = states_of(load_model(folder), corpus, options.tokens)
            seed = int(folder.name.removeprefix("seed-"))
            rows += [{"objective": objective, "seed": seed, **row} for row in rows_of(states, ids)]
            print(objective, seed, len(ids), flush=True)
    with atomic_write(options.results / "head_transform.csv") as temporary:
        pd.DataFrame(rows).to_csv(temporary, index=False, float_format="%.4g")


if __name__ == "__main__":
    main()
