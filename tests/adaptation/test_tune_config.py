"""Limits of the settings of tuning."""

import math

import pytest

from infoflow.adaptation import DEFAULT_RATES, METHODS, TuneConfig
from infoflow.foundation import UserError

WRONG = {
    "method": ["", "half", 1, None],
    "layers": [0, -1, 1.5, "2"],
    "layer_decay": [0, -0.1, 1.1, math.nan],
    "rank": [0, 1.5, 10**6],
    "alpha": [0, -1, math.inf],
    "learning_rates": [(0,), (-1e-3,), ("x",), 1e-3, (math.nan,), (1e-3, 1e-3), (11,)],
    "patience": [-1, 1.5, "2"],
    "epochs": [0, -1, 2.5, True],
    "head_epochs": [0, 2.5],
    "batch_examples": [0, -3, "many"],
    "warmup": [-0.1, 1, math.nan],
    "weight_decay": [-1, math.nan, 1e5],
    "clip": [-1, math.nan],
    "max_length": [2, 0, 1.5],
    "max_target": [-1, 1.5],
    "seeds": [(), (-1,), (0, 0), 3, (1.5,)],
    "examples": [-1, 1.5, None],
    "control": ["random", None],
    "answers": [-1, 0.5],
    "save_every": [-1, 0.5],
    "precision": ["fp16"],
    "device": ["tpu", ""],
}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in WRONG.items() for value in values])
def test_what_makes_no_sense_is_told(name, value):
    config = TuneConfig()
    object.__setattr__(config, name, value)  # past the type checks of these tests, which users do not have
    with pytest.raises(UserError, match=rf"tune\.{name}") as error:
        config.__post_init__()
    assert "\n" not in str(error.value)


def test_a_rate_may_not_decay_weights_away():
    with pytest.raises(UserError, match="must be below 1"):
        TuneConfig(learning_rates=(0.5,), weight_decay=2.0)


@pytest.mark.parametrize("method", METHODS)
def test_every_method_has_a_grid_of_its_own(method):
    config = TuneConfig(method=method)
    assert config.rates == DEFAULT_RATES[method]
    assert config.passes == (40 if method in ("frozen", "mix") else 4)
    assert len(config.seeds) > 1


def test_the_key_is_what_the_weights_follow_from():
    assert TuneConfig(seeds=(0, 1)).key() == TuneConfig(seeds=(0, 1, 2), save_every=3, device="cpu").key()
    assert TuneConfig(seeds=(1, 0)).key() != TuneConfig(seeds=(0, 1)).key()  # the first chooses the rate
    assert TuneConfig(epochs=5).key() != TuneConfig().key()
