"""An arm, or the inverse cloze task, trained by as many processes as were started: what each of them chose and has.

python tests/retrieval/trained_together.py OUT CASE [UPDATE]; it stops before UPDATE, as if it had been interrupted.
"""

import json
import sys
import threading
from pathlib import Path

import torch
from retrieval.tiny_arms import tiny_arm, tiny_config, tiny_data, tiny_library, tiny_retriever, tiny_world

from infoflow.flow import processes
from infoflow.retrieval import RetrievalModel
from infoflow.subjects.retrieval.objectives import InverseCloze
from infoflow.subjects.retrieval.training import IndexRefresh, PassageRows
from infoflow.training import TrainingData, train

LEARNED = {"refresh_every": 3, "lag": 1, "freeze_retriever": 0.25, "null_share": 0.4}
CASES = {
    "learned": ("retrieve-learned", LEARNED),
    "frozen": ("retrieve-learned", {**LEARNED, "freeze_retriever": 1.0}),
    "idle": ("retrieve-learned", LEARNED),  # with one query in each update
    "bm25": ("retrieve-bm25", {"null_share": 0.4}),
    "null-share": ("closed-book", {"null_share": 0.1, "null_share_only": True}),
}
CLOZE = "cloze"


class Stop(Exception):
    """An interruption."""


class Watched(IndexRefresh):
    """Keeps which passages each query was read with at each update."""

    def __init__(self, module: RetrievalModel, stop: int) -> None:
        super().__init__(module)
        self.chosen: dict[str, list[int]] = {}
        self._stop, choose = stop, module.choose

        def watched(ids, mask, k, gold, draws, *others):
            choice = choose(ids, mask, k, gold, draws, *others)
            for draw, found in zip(draws.tolist(), choice.ids.tolist(), strict=True):  # each query has its own draw
                self.chosen[f"{self.update}: {draw}"] = found
            return choice

        module.choose = watched

    def on_step_begin(self, step) -> None:
        if step.update == self._stop:
            raise Stop
        self.update = step.update
        super().on_step_begin(step)


def main(out: Path, case: str, stop: int = 0) -> None:
    torch.set_num_threads(1)
    sizes = {"micro_tokens": 10_000 if case == CLOZE else 100, "batch_sentences": 1 if case == "idle" else 12}
    config = tiny_config(learning_rate=2e-3, **sizes)
    hooks, left = [], {}
    if case == CLOZE:
        objective, model = InverseCloze(), tiny_retriever()
        data = TrainingData(source=PassageRows(tiny_library()), vocabulary=tiny_world()[2])
    else:
        name, options = CASES[case]
        (objective, model), data = tiny_arm(name, **options), tiny_data()
        hooks = [Watched(model, stop)]
    try:
        result = train(objective, config, data, model, out / "run", hooks=hooks)
    except Stop:
        return
    watched = any(thread.name == "heartbeat" for thread in threading.enumerate())
    if hooks:
        left = {"chosen": hooks[0].chosen, "learning": hooks[0].table.to_dict("list")}
    rank = processes()[0]
    (out / f"{rank}.json").write_text(json.dumps({**left, "supervised": result.supervised_tokens, "watched": watched}))
    torch.save(model.state_dict(), out / f"{rank}.pt")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], *map(int, sys.argv[3:]))
