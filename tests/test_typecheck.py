"""That tests do check types and shapes: the hook is ours, so it has tests of its own."""

import importlib
import sys
from importlib.util import cache_from_source
from pathlib import Path

import pytest
from jaxtyping import TypeCheckError
from support import typecheck

MODULE = '''
"""A module."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float


def half(number: float) -> float:
    return number / 2


def wrong(number: int) -> str:
    return number


def product(first: Float[np.ndarray, "n d"], second: Float[np.ndarray, "d m"]) -> Float[np.ndarray, "n m"]:
    return first @ second


@dataclass
class Point:
    states: Float[np.ndarray, "n d"]
    weights: Float[np.ndarray, "n"]

    @property
    def name(self) -> str:
        def inner(number: int) -> int:
            return number

        return inner("text")  # a function within a function is not checked

    @classmethod
    def of(cls, size: int) -> "Point":
        return cls(np.zeros((size, 2)), np.zeros(size))
'''


@pytest.fixture(scope="module")
def sample(tmp_path_factory):
    folder = tmp_path_factory.mktemp("package")
    (folder / "checked_sample.py").write_text(MODULE)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        patch.setattr(sys, "meta_path", list(sys.meta_path))
        typecheck.install("checked_sample")
        yield importlib.import_module("checked_sample")
    assert not Path(cache_from_source(str(folder / "checked_sample.py"))).exists()  # what other programs would load


def test_types_are_checked(sample):
    assert sample.half(3) == 1.5  # an int will do for a float
    with pytest.raises(TypeError, match="number"):
        sample.half("3")
    with pytest.raises(TypeError, match="return"):
        sample.wrong(3)
    with pytest.raises(TypeError, match="size"):
        sample.Point.of("2")


def test_axes_of_one_name_are_equally_long(sample):
    import numpy as np

    assert sample.product(np.zeros((2, 3)), np.zeros((3, 4))).shape == (2, 4)
    with pytest.raises(TypeCheckError, match="second"):
        sample.product(np.zeros((2, 3)), np.zeros((2, 4)))
    assert sample.Point.of(2).weights.shape == (2,)
    with pytest.raises(TypeCheckError, match="weights"):
        sample.Point(np.zeros((3, 2)), np.zeros(2))


def test_functions_within_functions_are_left_alone(sample):
    assert sample.Point.of(2).name == "text"


def test_what_is_kept_is_that_of_the_source(sample, tmp_path):
    loader = typecheck._Loader("checked_sample", str(tmp_path / "checked_sample.py"))
    for source in (MODULE, MODULE, MODULE.replace("number / 2", "number / 4")):
        Path(loader.path).write_text(source)
        assert loader.get_code("checked_sample") == loader.source_to_code(source.encode(), loader.path)


def test_infoflow_is_checked():
    from infoflow.representations import pwcca

    with pytest.raises(TypeError, match="x="):
        pwcca([1.0], [2.0])
