"""Learning rates at which training diverges end no grid."""

import pytest
import torch
from adaptation.small_task import small_data, small_model

from infoflow.adaptation import TuneConfig, tune
from infoflow.foundation import PlainDisplay, UserError, use_display
from infoflow.training import Step, TrainingHook

pytestmark = pytest.mark.slow

RATES = (3e-2, 1e-2, 1e-3)
CONFIG = TuneConfig(epochs=1, batch_examples=16, learning_rates=RATES, seeds=(0,), device="cpu")


class _Breaks(TrainingHook):
    """Makes weights infinite, as too large steps do, or stops."""

    name = "breaks"

    def __init__(self, stops: bool) -> None:
        self._stops = stops

    def on_step_begin(self, step: Step) -> None:
        if self._stops:
            raise KeyboardInterrupt
        with torch.no_grad():
            next(step.module.parameters()).fill_(float("inf"))


def _hooks(diverging, tried, stop=None):
    def hooks(seed, rate):
        tried.append(rate)
        return [_Breaks(stops=rate == stop)] if rate == stop or rate in diverging else []

    return hooks


def test_the_others_are_tried_and_one_is_chosen_also_by_a_call_that_goes_on(tmp_path, capsys):
    tried = []
    with pytest.raises(KeyboardInterrupt):
        tune(small_model(), small_data(), CONFIG, tmp_path, hooks=_hooks(RATES[:1], tried, stop=RATES[1]))
    assert tried == [*RATES[:2]]
    with use_display(PlainDisplay()):
        (one,) = tune(small_model(), small_data(), CONFIG, tmp_path, hooks=_hooks(RATES[:1], tried)).models
    assert tried == [*RATES[:2], *RATES[1:], one.learning_rate]
    assert one.learning_rate in RATES[1:]
    assert one.facts["rates"][str(RATES[0])] == -2e9
    assert f"({RATES[0]} diverged, " in capsys.readouterr().err
    whole = tune(small_model(), small_data(), CONFIG, tmp_path / "whole", hooks=_hooks(RATES[:1], []))
    assert whole.models[0].facts["rates"] == one.facts["rates"]


@pytest.mark.parametrize("rates", [RATES, RATES[:1]])
def test_where_all_diverge_lower_rates_are_asked_for(rates, tmp_path):
    config = TuneConfig(epochs=1, batch_examples=16, learning_rates=rates, seeds=(0,), device="cpu")
    with pytest.raises(UserError, match=r"must stay finite.* tried: 0\.03.*\nUse lower ones: --rates"):
        tune(small_model(), small_data(), config, tmp_path, hooks=_hooks(rates, []))
    assert not list(tmp_path.rglob("tuning.json"))
