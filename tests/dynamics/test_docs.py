"""The examples in the docstrings run."""

import doctest
import importlib
import pkgutil

import torch

from infoflow.subjects.allocation import measures as dynamics


def test_examples():
    attempted = 0
    for name in sorted(module.name for module in pkgutil.iter_modules(dynamics.__path__)):
        module = importlib.import_module(f"{dynamics.__name__}.{name}")
        results = doctest.testmod(module, extraglobs={"torch": torch})
        assert results.failed == 0, name
        attempted += results.attempted
    assert attempted >= 3
