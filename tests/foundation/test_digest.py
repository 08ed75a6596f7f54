"""Content keys."""

import hashlib
from dataclasses import dataclass
from pathlib import Path

import pytest

from infoflow.foundation import digest, file_digest


@dataclass(frozen=True)
class Plan:
    width: int
    path: Path


def test_value_never_changes():
    """Stored results are found by these keys."""
    assert digest({"width": 128, "objectives": ["causal-lm", "masked-lm"], "rate": 0.1}) == "29f15b5c000993f6"


def test_order_of_keys_does_not_count_but_values_do():
    assert digest({"a": 1, "b": 2}) == digest({"b": 2, "a": 1})
    assert digest({3, 1, 2}) == digest({2, 3, 1})
    assert digest((1, 2)) == digest([1, 2])
    values = [{"a": 1}, {"a": "1"}, {"a": 1.0}, {"a": None}, {"a": True}, {"b": 1}, [1, 2], [2, 1], [[1], 2]]
    assert len({digest(value) for value in values}) == len(values)


def test_dataclass_is_its_fields():
    assert digest(Plan(3, Path("x"))) == digest({"width": 3, "path": "x"})
    assert digest(Plan(3, Path("x"))) != digest(Plan(4, Path("x")))


def test_what_has_no_content_is_refused():
    with pytest.raises(TypeError, match="object has no content key"):
        digest({"model": object()})


def test_file_digest_is_sha256(tmp_path):
    content = bytes(range(256)) * 5000
    (tmp_path / "weights").write_bytes(content)
    assert file_digest(tmp_path / "weights") == hashlib.sha256(content).hexdigest()
