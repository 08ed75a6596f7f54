"""The examples in the docstrings run."""

import doctest
import importlib
import pkgutil

import torch

from infoflow.subjects.alignment import measures as alignment


def test_examples():
    attempted = 0
    for name in sorted(module.name for module in pkgutil.iter_modules(alignment.__path__)):
        module = importlib.import_module(f"{alignment.__name__}.{name}")
        results = doctest.testmod(module, extraglobs={"torch": torch})
        assert results.failed == 0, name
        attempted += results.attempted
    assert attempted >= 3
