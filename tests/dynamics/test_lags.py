"""Movements against gradients of other chords: the streamed means against all stored gradients and movements."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from dynamics.test_recorder import StoreWeights, frame, loss_of, record
from training.tiny import tiny_model

from infoflow.dynamics import RecordConfig
from infoflow.foundation import UserError
from infoflow.objectives import MaskedLM

LAGS = 2


@pytest.mark.parametrize(("every", "rule"), [(1, "trapezoid"), (3, "first-order")])
def test_streamed_cosines_are_those_of_stored_gradients(every: int, rule, tmp_path) -> None:
    store = StoreWeights()
    recorder, _ = record(MaskedLM(), tmp_path, store, config=RecordConfig(every=every, rule=rule, lags=LAGS))
    loss = loss_of(MaskedLM(), tiny_model(MaskedLM()).eval(), recorder.targets.sets[0])
    names, gradients, moves = recorder.cells.names, [], []
    for start, end in pairwise([*range(0, 14, every), 14]):
        weights = {name: w.clone().requires_grad_() for name, w in store.weights[start].items()}
        found = torch.autograd.grad(loss(weights), [weights[name] for name in names], materialize_grads=True)
        gradients.append(dict(zip(names, found, strict=True)))
        moves.append({name: store.weights[end][name] - store.weights[start][name] for name in names})
    table = frame(recorder, "lags")
    assert set(table["lag"]) == {-2, -1, 0, 1, 2}
    assert set(table["updates_per_chord"]) == {every}
    own = table[(table["level"] == "layer") & (table["layer"] == 1)].set_index("lag")
    inside = [name for name in names if ".layer.1." in name]
    for lag in range(-LAGS, LAGS + 1):
        cosines = []
        for chord, move in enumerate(moves):
            if 0 <= chord - lag < len(moves):
                pair = [torch.cat([of[name].reshape(-1) for name in inside]) for of in (move, gradients[chord - lag])]
                if all(float(vector.norm()) for vector in pair):
                    cosines.append(-float(torch.dot(*pair) / pair[0].norm() / pair[1].norm()))
        assert own.loc[lag, "count"] == len(cosines) > 0
        assert own.loc[lag, "value"] == pytest.approx(np.mean(cosines), rel=1e-3, abs=1e-5)
    assert table["value"].dropna().between(-1, 1).all()
    assert own.loc[0, "value"] > 0  # on the whole, training goes downhill


def test_what_never_moves_has_no_cosine(tmp_path) -> None:
    recorder, _ = record(MaskedLM(), tmp_path, config=RecordConfig(every=14, windows=1, lags=1))
    table = frame(recorder, "lags").set_index("lag")
    assert set(table.loc[0, "count"]) == {1}
    assert table.loc[[-1, 1], "value"].isna().all()  # there is one chord only
    recorder, _ = record(MaskedLM(), tmp_path / "without")
    assert frame(recorder, "lags").empty


def test_lags_need_gradients_at_the_ends() -> None:
    with pytest.raises(UserError, match=r"dynamics\.lags must be a whole number from 0 to 1,000\. Got -1"):
        RecordConfig(lags=-1)
    with pytest.raises(UserError, match=r"Got lags 2 and midpoint"):
        RecordConfig(rule="midpoint", lags=2)
