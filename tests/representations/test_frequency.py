"""Change and influence by frequency rank: bins, targets, and the numbers against an explicit slow computation."""

import numpy as np
import pandas as pd
import pytest

from infoflow.flow import Occurrences, SampleFacts, TokenSample
from infoflow.foundation import use_display
from infoflow.representations import ChangeByFrequency, pwcca

EDGES = (1, 4, 10, 20, 60)


class Recorder:
    """A display that keeps what it is told."""

    def __init__(self):
        self.notes, self.warnings = [], []

    def note(self, text):
        self.notes.append(text)

    def warn(self, text):
        self.warnings.append(text)

    def progress(self, label, total, unit="steps"):
        from contextlib import nullcontext

        class Bar:
            def advance(self, num=1, **fields):
                pass

        return nullcontext(Bar())


@pytest.fixture
def display():
    recorder = Recorder()
    with use_display(recorder):
        yield recorder


def make_sample(num=6000, width=6, num_states=3, seed=0):
    """Tokens drawn by Zipf's law; layer by layer more noise, twice as much for the frequent half of the types."""
    rng = np.random.default_rng(seed)
    shares = 1 / np.arange(1, 60)
    token = rng.choice(59, num, p=shares / shares.sum())
    vectors = rng.normal(size=(num, width))
    scale = np.where(token < 9, 0.6, 0.3)[:, None]
    states = np.stack([vectors + scale * layer * rng.normal(size=(num, width)) for layer in range(num_states)])
    nothing = np.zeros(num, dtype=np.int64)
    names = [name for name in Occurrences.__dataclass_fields__ if name not in ("sentence", "token")]
    occurrences = Occurrences(sentence=np.arange(num) // 8, token=token, **dict.fromkeys(names, nothing))
    facts = SampleFacts(
        model="model",
        stack="encoder",
        regime="clean",
        task="masked-lm",
        seed=0,
        tokenizer="words",
        frequencies=np.bincount(token, minlength=59),
        ranks=np.arange(1, 60),
    )
    return TokenSample(occurrences, states.astype(np.float32), facts)


def test_change_is_the_distance_of_the_first_occurrences_of_each_bin(display):
    sample, measure = make_sample(), ChangeByFrequency(per_bin=900, edges=EDGES)
    frame = measure.table.conform(measure.compute(sample))
    assert frame[["bin", "layer"]].to_numpy().tolist() == [[b, layer] for b in range(4) for layer in range(2)]
    assert (frame["next_layer"] == frame["layer"] + 1).all()
    assert frame["count"].nunique() == 1
    assert not display.warnings
    size = int(frame["count"].iloc[0])
    for row in frame.itertuples():
        ranks = sample.occurrences.token + 1
        chosen = np.flatnonzero((ranks >= row.rank_low) & (ranks < row.rank_high))[:size]
        states = [sample.states(layer)[chosen] for layer in (row.layer, row.next_layer)]
        assert row.value == pytest.approx(1 - pwcca(*states), abs=1e-9)
        assert row.low <= row.value <= row.high
        assert row.value < row.baseline
        assert len(row.replicates) == 200


def test_what_changes_more_has_the_larger_distance(display):
    frame = ChangeByFrequency(per_bin=900, edges=EDGES).compute(make_sample())
    first = frame[frame["layer"] == 0].set_index("bin")
    assert first.loc[[0, 1], "low"].min() > first.loc[[2, 3], "high"].max()


def test_no_bin_at_all_is_an_empty_table(display):
    measure = ChangeByFrequency(per_bin=900, edges=(500, 600))
    frame = measure.table.conform(measure.compute(make_sample()))
    assert isinstance(frame, pd.DataFrame)
    assert frame.empty


def test_the_published_bins():
    assert ChangeByFrequency().request.strata.num == 11
