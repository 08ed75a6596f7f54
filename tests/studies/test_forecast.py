"""The time left of a study, against the courses of studies whose end is known."""

from dataclasses import dataclass

import pytest

from infoflow.studies import Forecast


@dataclass(frozen=True)
class Toy:
    key: str
    kind: str
    cost: float
    """Seconds, as the plan guesses."""
    takes: float
    needs: tuple[str, ...] = ()
    reports: bool = False
    slow: float = 0.0
    """Seconds at its start in which nothing is done."""

    def share(self, seconds):
        return max(seconds - self.slow, 0.0) / (self.takes - self.slow)


def course(stages, at_a_time, every=10.0):
    """Forecasts of a study by the seconds since its start, and its end."""
    now, ended, running, forecasts = 0.0, set(), {}, {}
    forecast = Forecast(stages, now=lambda: now)
    while len(ended) < len(stages):
        for stage in stages:
            ready = stage.key not in ended and stage.key not in running and set(stage.needs) <= ended
            if ready and len(running) < at_a_time:
                running[stage.key] = (stage, now)
                forecast.start(stage.key)
        if now % every == 0:
            forecasts[now] = forecast.left()
        now += 1.0
        for key, (stage, began) in list(running.items()):
            if now - began >= stage.takes:
                del running[key]
                ended.add(key)
                forecast.end(key)
            elif stage.reports:
                forecast.advance(key, stage.share(now - began))
    return forecasts, now


def errors(forecasts, end, since):
    """Forecast over truth, for those after `since` seconds and before the last minute."""
    return [left / (end - at) for at, left in forecasts.items() if left is not None and since <= at < end - 60]


def trainings(num, takes=300.0, cost=60.0, **more):
    return [Toy(f"train {i}", "train", cost, takes, reports=True, **more) for i in range(num)]


def after(stages, kind, cost, takes):
    return [Toy(f"{kind} {stage.key}", kind, cost, takes, needs=(stage.key,)) for stage in stages]


def test_stages_that_run_at_a_time_share_the_time():
    stages = trainings(8)
    one, end_one = course(stages, 1)
    two, end_two = course(stages, 2)
    assert end_one == 2400
    assert end_two == 1200
    for forecasts, end in ((one, end_one), (two, end_two)):
        assert all(0.8 < ratio < 1.25 for ratio in errors(forecasts, end, since=20))


def test_a_slow_start_is_forgotten():
    stages = trainings(8, slow=60.0)
    forecasts, end = course(stages, 2)
    early = [forecasts[at] for at in (0.0, 20.0, 40.0)]
    assert early == [None, None, None]  # nothing is known: no forecast of hours
    assert all(0.7 < ratio < 1.3 for ratio in errors(forecasts, end, since=80))


@pytest.mark.parametrize("takes", [15.0, 600.0])  # the plan guesses as long as a training
def test_the_pace_of_a_kind_is_learned_from_its_first_stages(takes):
    trained = trainings(4)
    stages = [*trained, *after(trained, "measure", 60.0, takes)]
    forecasts, end = course(stages, 2)
    first = min(at for at in forecasts if at > 600 + takes)  # the first two are measured
    assert all(0.75 < ratio < 1.35 for ratio in errors(forecasts, end, since=first))


def test_what_has_not_begun_is_scaled_by_what_is_known():
    """On a machine where training takes five times as long as guessed, measuring does too until it is known."""
    trained = trainings(4)
    stages = [*trained, *after(trained, "measure", 60.0, 300.0)]
    forecasts, end = course(stages, 2)
    assert all(0.75 < ratio < 1.35 for ratio in errors(forecasts, end, since=20))


def test_a_chain_takes_its_time_whatever_the_number_of_processes():
    first = Toy("a", "train", 60.0, 100.0, reports=True)
    second = Toy("b", "train", 60.0, 100.0, needs=("a",), reports=True)
    third = Toy("c", "train", 60.0, 100.0, needs=("b",), reports=True)
    forecasts, end = course([first, second, third], 8)
    assert end == 300
    assert all(0.8 < ratio < 1.25 for ratio in errors(forecasts, end, since=20))


def test_a_stage_that_takes_longer_than_expected_is_not_about_to_end_for_hours():
    stages = [Toy("a", "measure", 60.0, 60.0), Toy("b", "measure", 60.0, 1200.0)]
    forecasts, _ = course(stages, 1)
    assert forecasts[110.0] == pytest.approx(10.0)
    assert forecasts[660.0] == pytest.approx(60.0)  # a tenth of its time so far


def test_a_first_report_that_jumps_ahead_does_not_predict_hours():
    now = 0.0
    forecast = Forecast([Toy("a", "measure", 1.0, 60.0)], now=lambda: now)
    forecast.start("a")
    for now, share in ((1.0, 0.17), (11.0, 0.172)):  # noqa: B007 (the clock)
        forecast.advance("a", share)
    left = forecast.left()
    assert left is not None
    assert 30 < left < 120
