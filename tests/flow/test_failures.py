"""A measure that fails leaves its own table out and no other; a lack of memory and an interruption stop everything."""

from typing import ClassVar

import numpy as np
import pandas as pd
import pytest

from infoflow.flow import Intervention, Measure, PassOptions, Reader, SampleMeasure, SampleRequest, collect, measure
from infoflow.foundation import UserError
from infoflow.heads import Confidence
from infoflow.models import Model
from infoflow.results import Column, TableSchema

_COLUMN = Column(name="value", dtype="float64", unit="", description="a number")


def _schema(name: str) -> TableSchema:
    return TableSchema(name=name, version=1, description="fails", columns=(_COLUMN,))


class FailingIntervention(Intervention):
    table: ClassVar[TableSchema] = _schema("failing_intervention")

    def __init__(self, error: BaseException) -> None:
        self._error = error

    def run(self, reader: Reader, options: PassOptions) -> pd.DataFrame:
        raise self._error


class FailingSample(SampleMeasure):
    table: ClassVar[TableSchema] = _schema("failing_sample")
    request = SampleRequest(occurrences=10)

    def compute(self, sample) -> pd.DataFrame:
        raise IndexError("list index out of range")


class FailingUpdate(Measure):
    table: ClassVar[TableSchema] = _schema("failing_update")
    needs = frozenset({"hidden"})

    def __init__(self, where: str) -> None:
        self.where = where

    def refusal(self, model: Model) -> str | None:
        return self._fail("refusal")

    def prepare(self, reader: Reader) -> None:
        self._fail("prepare")

    def update(self, activations) -> None:
        self._fail("update")

    def _fail(self, where: str) -> None:
        if where == self.where:
            raise ValueError(f"no {where}")

    def merge(self, other) -> None:
        pass

    def state_dict(self) -> dict[str, np.ndarray]:
        return {}

    def load_state_dict(self, state) -> None:
        pass

    def result(self) -> pd.DataFrame:
        return pd.DataFrame({"value": [1.0]})


@pytest.fixture
def masked(matched_models) -> Model:
    return matched_models["masked-lm"]


@pytest.mark.parametrize(
    "failing",
    [
        FailingIntervention(ValueError("not enough values to unpack")),
        FailingIntervention(AssertionError("3 of 4 blocks ran")),
        FailingSample(),
        *[FailingUpdate(where) for where in ("refusal", "prepare", "update")],
    ],
    ids=["intervention", "assertion", "sample", "refusal", "prepare", "update"],
)
def test_an_unexpected_failure_is_told_and_the_others_stay(masked, parallel_corpus, failing):
    expected = measure(masked, parallel_corpus, [Confidence()])
    with pytest.warns(UserWarning, match=f"{failing.name} of .* is left out: this is a fault of infoflow"):
        tables = measure(masked, parallel_corpus, [failing, Confidence()])
    assert set(tables) == {"head_confidence"}
    pd.testing.assert_frame_equal(tables["head_confidence"], expected["head_confidence"])


def test_what_failed_is_kept_with_its_traceback(masked, parallel_corpus, tmp_path):
    failing = FailingIntervention(ZeroDivisionError("division by zero"))
    with pytest.warns(UserWarning, match="ZeroDivisionError: division by zero"):
        measured = collect(masked, parallel_corpus, [failing, Confidence()], tmp_path)
    (failure,) = measured.failures
    assert (failure.table, failure.model) == ("failing_intervention", masked.name)
    assert "raise self._error" in failure.traceback


def test_a_mistake_of_the_user_is_no_fault_of_ours(masked, parallel_corpus, tmp_path):
    failing = FailingIntervention(UserError("layers must lie in 0..1. Got 12."))
    with pytest.warns(UserWarning, match="left out: layers must lie in"):
        measured = collect(masked, parallel_corpus, [failing, Confidence()], tmp_path)
    assert measured.failures[0].traceback == ""
    assert "fault" not in measured.failures[0].reason


def test_the_only_measure_raises(masked, parallel_corpus):
    with pytest.raises(ZeroDivisionError):
        measure(masked, parallel_corpus, [FailingIntervention(ZeroDivisionError("division by zero"))])
    with pytest.raises(UserError, match="layers"):
        measure(masked, parallel_corpus, [FailingIntervention(UserError("layers must lie in 0..1."))])


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        KeyboardInterrupt(),
        OSError(28, "No space left on device"),
        RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes"),
    ],
    ids=["memory", "interruption", "disk", "torch's memory"],
)
def test_what_the_machine_lacks_and_an_interruption_stop_everything(masked, parallel_corpus, error):
    with pytest.raises(type(error)):
        measure(masked, parallel_corpus, [FailingIntervention(error), Confidence()])


def test_a_table_of_two_measures_is_left_out_whole(masked, parallel_corpus):
    whole, half = FailingUpdate("nowhere"), FailingUpdate("update")
    with pytest.warns(UserWarning, match="failing_update"):
        tables = measure(masked, parallel_corpus, [whole, half, Confidence()])
    assert set(tables) == {"head_confidence"}
    assert set(measure(masked, parallel_corpus, [whole, Confidence()])) == {"failing_update", "head_confidence"}
