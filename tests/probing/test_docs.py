"""The examples in the docstrings run."""

import doctest
import importlib
import pkgutil

import numpy as np
import torch

from infoflow import probing


def test_examples():
    attempted = 0
    for name in sorted(module.name for module in pkgutil.iter_modules(probing.__path__)):
        module = importlib.import_module(f"infoflow.probing.{name}")
        results = doctest.testmod(module, extraglobs={"np": np, "torch": torch})
        assert results.failed == 0, name
        attempted += results.attempted
    assert attempted >= 7
