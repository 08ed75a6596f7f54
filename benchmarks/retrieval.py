"""Training with passages, as ratios within one run.

    python benchmarks/retrieval.py [--rounds 9] [--queries 64] [--k 2] [--width 64]

A reader of the small study (width 64, 4 layers) with a learned retriever, on the world of facts; one thread, processor
seconds, best of rounds that take turns. Two ratios:

- retrieval's share of an update: what choosing candidates and scoring them adds to reading them, forward and backward;
- summing out k passages and the empty one, against as many forward and backward passes of the plain masked LM on the
  same rows, one candidate at a time. Bar: 1.2.
"""

import argparse
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from _timing import best_of

from infoflow.architectures import ModelConfig, build
from infoflow.corpus import FactConfig, Vocabulary, generate_facts
from infoflow.foundation import SilentDisplay, set_threads, use_display
from infoflow.objectives import make_objective
from infoflow.retrieval import (
    NULL,
    Candidates,
    Library,
    Passages,
    build_retriever,
    marginal_log_likelihood,
    retriever_config,
)
from infoflow.subjects.retrieval.objectives import retrieval_model
from infoflow.subjects.retrieval.training import fact_query_rows
from infoflow.training import TrainingData

BAR = 1.2


class Case:
    """One batch of queries, its candidates, and the model that reads them."""

    def __init__(self, queries: int, k: int, width: int) -> None:
        world = generate_facts(FactConfig(entities=256))
        tokenizer = world.tokenizer()
        vocabulary = Vocabulary.from_tokenizer(tokenizer)
        library = Library(Passages.from_rows(world.passages()), tokenizer)
        shape = ModelConfig(width=width, layers=4, heads=4, feedforward=4 * width, positions=128, dropout=0.0)
        reader = build("bert", "encoder", shape, vocabulary, seed=0)
        retriever = build_retriever(retriever_config(reader.config), seed=0)
        self.objective: Any = make_objective("retrieve-learned", k=k, null_share=0.0)
        self.model = retrieval_model(self.objective, reader, library, retriever).train()
        library.dense = library.embed(retriever.passages)
        data = TrainingData(source=fact_query_rows(world, tokenizer, library), vocabulary=vocabulary)
        self.batch = data.batch(self.objective, np.arange(queries), ("benchmark",), 0)
        nothing = np.zeros(queries, dtype=np.int64)
        excluded = [[id for id in row if id >= 0] for row in self.batch["excluded"].tolist()]
        gold = self.batch["gold"].numpy()
        self.ask = (self.batch.input_ids, self.batch.attention_mask)
        self.choose = lambda: self.model.choose(*self.ask, k, gold, nothing, excluded, nothing.astype(bool))
        self.choice = self.choose()

    def whole(self) -> float:
        """Choose, score, read, sum out."""
        choice = self.choose()
        return self._finished(choice, self.model.logits(*self.ask, choice))

    def read(self) -> float:
        """Read and sum out: candidates and scores are there."""
        return self._finished(self.choice, torch.zeros(self.choice.ids.shape, requires_grad=True))

    def _finished(self, choice: Candidates, scores: torch.Tensor) -> float:
        self.model.zero_grad(set_to_none=True)
        logs, targets = self.model.log_likelihoods(*self.ask, self.batch.labels, choice)
        there = torch.from_numpy(choice.there)
        loss = -marginal_log_likelihood(scores, logs, candidates=there, tokens=targets).sum()
        loss.backward()
        return loss.item()

    def passes(self) -> list[Callable[[], float]]:
        """A forward and backward pass of the masked LM for each place among the candidates, over ready-made rows."""
        return [self._one_pass(column) for column in range(self.choice.ids.shape[1])]

    def _one_pass(self, column: int) -> Callable[[], float]:
        rows = np.flatnonzero(self.choice.there[:, column])
        lengths = self.ask[1].sum(dim=1).tolist()
        pairs = []
        for row in rows:
            query = self.ask[0][row, : lengths[row]].numpy()
            id = int(self.choice.ids[row, column])
            body = self.model.passage_library.body(id) if id != NULL else np.empty(0, dtype=np.int64)
            pairs.append((query, np.append(body, query[-1])))
        longest = max(len(x) + len(z) for x, z in pairs)
        arrays = {name: np.zeros((len(rows), longest), dtype=np.int64) for name in ("ids", "segments", "mask")}
        labels = np.full((len(rows), longest), -100)
        for place, (row, (x, z)) in enumerate(zip(rows, pairs, strict=True)):
            both = len(x) + len(z)
            arrays["ids"][place, :both] = np.concatenate([x, z])
            arrays["segments"][place, len(x) : both] = 1
            arrays["mask"][place, :both] = 1
            labels[place, : len(x)] = self.batch.labels[row, : len(x)].numpy()
        ids, segments, mask = (torch.from_numpy(array) for array in arrays.values())
        asked = torch.from_numpy(labels)
        at, to = asked != -100, asked[asked != -100]
        reader = self.model.reader

        def run() -> float:
            states = reader.bert(input_ids=ids, token_type_ids=segments, attention_mask=mask).last_hidden_state
            loss = torch.nn.functional.cross_entropy(reader.cls(states[at]), to, reduction="sum")
            loss.backward()
            return loss.item()

        return run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--queries", type=int, default=64)
    parser.add_argument("--k", type=int, default=2)
    parser.add_argument("--width", type=int, default=64)
    given = parser.parse_args()
    set_threads(1)
    with use_display(SilentDisplay()):
        case = Case(given.queries, given.k, given.width)
        passes = case.passes()

        def plain() -> float:
            case.model.zero_grad(set_to_none=True)
            return sum(one() for one in passes)

        seconds, _ = best_of(given.rounds, {"whole": case.whole, "read": case.read, "passes": plain})
    share = 1 - seconds["read"] / seconds["whole"]
    ratio = seconds["read"] / seconds["passes"]
    num = given.k + 1
    print(f"{given.queries} queries, {given.k} passages and the empty one, width {given.width}")
    print(f"an update: {1e3 * seconds['whole']:.1f} ms; of it choosing and scoring passages: {share:.0%}")
    print(f"summing out {num} candidates over {num} passes of the masked LM: {ratio:.2f} (bar {BAR})")
    print("within the bar" if ratio <= BAR else "BEYOND the bar")


if __name__ == "__main__":
    main()
