"""Claims about closed attention on invented tables where they hold, fail, are left open, or cannot be tested."""

from dataclasses import dataclass, field

import numpy as np
import pandas as pd
import pytest
from pruning.synthetic import Sweeps, task_scores

from infoflow.findings import FINDINGS, evaluate

REPLICATES = 40
IDS = ("context:E1", "context:E2")
LEARNED = 4.0  # nats per token beyond frequencies


@dataclass
class Closed:
    """What a study wrote of a translation model; change a field before calling `table`."""

    shares: dict = field(default_factory=lambda: {"encoder-self": 0.4, "decoder-self": 0.2})
    retrained: dict = field(default_factory=lambda: {"encoder-self": 0.25, "decoder-self": 0.1})
    untrained: float = 0.0
    seeds: tuple = (1, 2, 3)
    retrained_seeds: tuple = (1, 2, 3)
    noise: float = 0.01
    between: float = 0.01

    def table(self) -> pd.DataFrame:
        return pd.DataFrame([row for seed in self.seeds for row in self._rows(seed)])

    def _rows(self, seed):
        for place, kind in enumerate(self.shares):
            yield from self._both(seed, kind, self.shares[kind], 0, place)
            if seed in self.retrained_seeds:
                yield from self._both(seed, kind, self.retrained[kind], 500, place + 2)
            change = self._row(seed, kind, 0, False, "loss", LEARNED * self.untrained * (1 - 2 * place), 8.0, place)
            yield change

    def _both(self, seed, kind, share, retrained, place):
        yield self._row(seed, kind, retrained, True, "loss", LEARNED * share, 2.0, place)
        yield self._row(seed, kind, retrained, True, "share", share, LEARNED, place)

    def _row(self, seed, kind, retrained, trained, metric, value, baseline, place):
        rng = np.random.default_rng([seed, place, metric == "loss", trained])
        value = value + self.between * rng.standard_normal() * trained
        model = {"model": f"translation/seed-{seed}", "objective": "translation", "seed": seed, "trained": trained}
        return {
            **model, "kind": kind, "which": "all", "number": 6, "retrained": retrained, "metric": metric,
            "value": value, "low": value - 0.02, "high": value + 0.02, "baseline": baseline, "count": 400,
            "replicates": (value + self.noise * rng.standard_normal(REPLICATES)).tolist(),
        }  # fmt: skip


def verdicts(closed=None, **changes):
    closed = closed or Closed()
    tables = {"encoder_context": closed.table(), "task_scores": task_scores(Sweeps(seeds=closed.seeds))} | changes
    kept = {name: table for name, table in tables.items() if table is not None}
    return evaluate(kept, [FINDINGS[name] for name in IDS]).set_index("id")


def test_both_hold_where_they_are_true():
    found = verdicts(Closed(between=0.0))
    assert list(found["verdict"]) == ["holds", "holds"], found["note"].to_list()
    assert found["effect"].to_list() == pytest.approx([0.25, 0.15])
    assert found["threshold"].to_list() == [0.1, 0.0]
    assert found["reason"].str.contains("trained further that way for 500 updates").all()
    assert found["claim"].str.contains("our threshold").all()
    assert found["control_name"].str.startswith("untrained model").all()
    assert found["control"].to_list() == pytest.approx([0.0, 0.0])


def test_without_retraining_they_are_told_at_test_time_and_say_so():
    found = verdicts(Closed(retrained_seeds=(), between=0.0))
    assert list(found["verdict"]) == ["holds", "holds"]
    assert found["effect"].to_list() == pytest.approx([0.4, 0.2])
    assert found["reason"].str.contains("at test time .no model was retrained").all()


def test_what_a_model_can_do_elsewhere_is_not_needed():
    """At test time much is lost, after retraining little: the retrained models decide."""
    found = verdicts(Closed(retrained={"encoder-self": 0.03, "decoder-self": 0.2}))
    assert list(found["verdict"]) == ["fails", "fails"]


def test_one_seed_is_enough_for_a_model_by_itself():
    found = verdicts(Closed(seeds=(2,)))
    assert list(found["verdict"]) == ["holds", "holds"]
    assert found["reason"].str.contains("One seed").all()


def test_a_control_that_shows_it_too_leaves_it_open():
    found = verdicts(Closed(untrained=0.3))
    assert list(found["verdict"]) == ["undetermined", "undetermined"]
    assert found["reason"].str.contains("The control shows it too").all()


def test_seeds_of_which_some_were_retrained_cannot_be_compared():
    found = verdicts(Closed(retrained_seeds=(1,)))
    assert list(found["verdict"]) == ["not testable here"] * 2
    assert found["reason"].str.contains("ome of its seeds were retrained and others were not").all()


def test_what_is_missing_is_named():
    table = Closed().table()
    for changes, reason in (
        ({"encoder_context": None}, "The table encoder_context is absent: infoflow study on the run's folder makes it"),
        ({"encoder_context": table[table["metric"] == "loss"]}, "that knows more than frequencies"),
        ({"encoder_context": table[table["kind"] == "decoder-self"]}, "no rows of encoder-self"),
        ({"encoder_context": table[table["trained"]]}, "No control was measured"),
        ({"encoder_context": table.drop(columns="retrained")}, "has no column retrained"),
    ):
        found = verdicts(**changes)
        assert list(found["verdict"]) == ["not testable here"] * 2
        assert found["reason"].str.contains(reason, regex=False).all(), found["reason"].to_list()
