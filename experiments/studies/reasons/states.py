"""What of a failing claim is in the way states are read? Saved models, read again in other ways; nothing is trained.

    python experiments/studies/reasons/states.py runs/scale/w64-10M

For each causal LM, masked LM and translation encoder of a study, on sentences of its test part:

| measure | states | what is changed |
|---|---|---|
| average_similarity, self_similarity (less the average) | raw | nothing |
| | unbiased | the bias of the layer's last LayerNorm is subtracted |
| | standardised | that, and its gain is divided out: mean 0 and deviation 1 over dimensions |
| | unplaced | the mean state of each position in the sentence is subtracted |
| | unplaced, standardised | both |
| average_similarity, layer 0 | words | the table of token embeddings alone, one row an occurrence |
| information | raw | of 200, 1,000 and 4,000 clusters about the token |
| | unplaced | the mean state of each position is subtracted before |
| position | raw | in sentences of up to 6, of 7 to 10, of 11 words and more, among themselves |
| left | raw, unplaced | of the 10 and 50 nearest occurrences of the token, those after the same token |

One row a model, layer, measure, states and detail in `states.csv`; seeds that are there already are kept.
"""

import argparse
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from infoflow.foundation import atomic_write, set_threads
from infoflow.models import Model
from infoflow.representations import (
    average_similarity,
    discretize,
    mutual_information,
    position_distance,
    self_similarity,
    within_token_agreement,
)
from infoflow.studies import at_most

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "alignment"))
from align_minilm import of_study  # noqa: E402 (of another experiment)

OBJECTIVES = ("causal-lm", "masked-lm", "translation")
TYPES, CLUSTERS = 1000, (200, 1000, 4000)
SIMILAR, NEIGHBOURS, POOL = 5000, (10, 50), 20_000  # tokens drawn; nearest occurrences; tokens they are among
LENGTHS = {"up to 6": (1, 6), "7 to 10": (7, 10), "11 and more": (11, 99)}  # words
LEAST = 20  # occurrences of a token whose self-similarity counts


class Tokens:
    """All tokens of some sentences but [CLS] and [SEP], and what each layer holds at them."""

    def __init__(self, model: Model, texts: list[str]) -> None:
        module, tokenizer = model.module.eval(), model.tokenizer
        self.base: Any = module.encoder if model.task == "seq2seq" else module.base_model
        by_length = defaultdict(list)
        for text in texts:
            ids = tokenizer(text)["input_ids"]  # type: ignore[misc] (a study's models have one)
            by_length[len(ids)].append((ids, len(text.split())))
        states, ids, places, words = [], [], [], []
        for length, sentences in sorted(by_length.items()):
            for start in range(0, len(sentences), 128):
                read = torch.tensor([row for row, _ in sentences[start : start + 128]])
                hidden = self.base(input_ids=read, output_hidden_states=True).hidden_states
                states.append(torch.stack([layer[:, 1:-1].flatten(0, 1) for layer in hidden]))
                ids.append(read[:, 1:-1].flatten())
                places.append(torch.arange(length - 2).repeat(len(read)))
                words += [num for _, num in sentences[start : start + 128] for _ in range(length - 2)]
        self.states = torch.cat(states, dim=1)  # (layer, token, width)
        self.ids, self.places, self.words = torch.cat(ids).numpy(), torch.cat(places).numpy(), np.array(words)
        self.left = np.where(self.places > 0, np.roll(self.ids, 1), -1)

    def by_frequency(self) -> np.ndarray:
        """The different tokens, the most frequent first."""
        kinds, counts = np.unique(self.ids, return_counts=True)
        return kinds[np.argsort(-counts, kind="stable")]

    def norm(self, layer: int) -> Any:
        """The LayerNorm whose output the layer's states are."""
        return self.base.embeddings.LayerNorm if layer == 0 else self.base.encoder.layer[layer - 1].output.LayerNorm


def rows_of(tokens: Tokens) -> Iterator[dict[str, Any]]:
    generator = np.random.default_rng(0)
    order = generator.permutation(len(tokens.ids))
    kinds, counts = np.unique(tokens.ids, return_counts=True)
    table = tokens.base.embeddings.word_embeddings.weight
    drawn, inside = order[:SIMILAR], order[tokens.places[order] > 0]
    occurrences = [np.flatnonzero(tokens.ids == kind) for kind in kinds[counts >= LEAST]]
    of_length = {
        name: order[(tokens.words[order] >= least) & (tokens.words[order] <= most)][:POOL]
        for name, (least, most) in LENGTHS.items()
    }
    yield row(0, "average_similarity", "words", "", average_similarity(table[tokens.ids[drawn]]))
    for layer, raw in enumerate(tokens.states):
        norm = tokens.norm(layer)
        standardised = (raw - norm.bias) / norm.weight
        read = {
            "raw": raw,
            "unbiased": raw - norm.bias,
            "standardised": standardised,
            "unplaced": (unplaced := unplaced_states(raw, tokens.places)),
            "unplaced, standardised": unplaced_states(standardised, tokens.places),
        }
        for name, states in read.items():
            average = average_similarity(states[drawn])
            own = [self_similarity(states[at]) for at in occurrences]
            yield row(layer, "average_similarity", name, "", average)
            yield row(layer, "self_similarity", name, "", float(np.mean(own)) - average)
        yield from information_rows(tokens, layer, {"raw": raw, "unplaced": unplaced}, CLUSTERS)
        for name, kept in of_length.items():
            value = position_distance(raw[kept], tokens.ids[kept], tokens.places[kept])
            yield row(layer, "position", "raw", name, value)
        for name, states in {"raw": raw, "unplaced": unplaced}.items():
            for k in NEIGHBOURS:
                value = within_token_agreement(states[inside], tokens.ids[inside], tokens.left[inside], k=k)
                yield row(layer, "left", name, f"{k} neighbours", value)


def information_rows(
    tokens: Tokens, layer: int, read: Mapping[str, Tensor], clusters: Sequence[int]
) -> Iterator[dict[str, Any]]:
    """What the layer's states, each way they are read, tell of the token, for each number of clusters."""
    frequent = np.isin(tokens.ids, tokens.by_frequency()[:TYPES])
    for name, states in read.items():
        for number in clusters:
            found = discretize(states[frequent], number, seed=0).numpy()
            value = mutual_information(found, tokens.ids[frequent], "chao-wang-jost")
            yield row(layer, "information", name, f"{number} clusters", value)


def unplaced_states(states: Tensor, places: np.ndarray) -> Tensor:
    """The states less the mean at their position, plus the mean of all."""
    place, result = torch.from_numpy(places), states + states.mean(0)
    for each in place.unique():
        result[place == each] -= states[place == each].mean(0)
    return result


def row(layer: int, measure: str, states: str, detail: str, value: float) -> dict[str, Any]:
    return {"layer": layer, "measure": measure, "states": states, "detail": detail, "value": value}


def of_each(models: Mapping[str, Tokens]) -> Iterator[dict[str, Any]]:
    """Rows of each model of one seed."""
    for objective, tokens in models.items():
        for each in rows_of(tokens):
            yield {"objective": objective, **each}


@torch.no_grad()
def read_seeds(
    about: str | None,
    results: Path | None,
    rows: Callable[[Mapping[str, Tokens]], Iterator[dict[str, Any]]],
    objectives: Sequence[str] = OBJECTIVES,
) -> None:
    """Read the models of each seed of the run on the command line, and add their rows to the results.

    Where no file for results is given, the command must name one.
    """
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--architecture", default="plain-bert")
    parser.add_argument("--sentences", type=int, default=6000)
    parser.add_argument("--results", type=Path, default=results, required=results is None)
    options = parser.parse_args()
    set_threads(1)
    done = pd.read_csv(options.results, keep_default_na=False) if options.results.exists() else pd.DataFrame()
    folders = (options.run / "models" / f"{objectives[0]}-on-{options.architecture}").glob("seed-*")
    for seed in sorted(int(folder.name.removeprefix("seed-")) for folder in folders):
        if len(done) and (done["seed"] == seed).any():
            continue
        models = {}
        for objective in objectives:
            model, data = of_study(options.run, f"{objective}-on-{options.architecture}/seed-{seed}")
            models[objective] = Tokens(model, list(at_most(data.test, options.sentences).column("text")))
        new = pd.DataFrame(rows(models))
        new.insert(1, "seed", seed)
        done = pd.concat([done, new], ignore_index=True)
        with atomic_write(options.results) as temporary:
            done.to_csv(temporary, index=False, float_format="%.5g")
        print(seed, len(new), flush=True)


if __name__ == "__main__":
    read_seeds(__doc__, HERE / "states.csv", of_each)
