"""The examples in the docstrings run."""

import doctest
import importlib

import pytest
import torch


@pytest.mark.parametrize("name", ["_tap", "_anatomy", "_rerun", "_model"])
def test_examples(models, name):
    from infoflow.models import model_inputs

    module = importlib.import_module(f"infoflow.models.{name}")
    given = {**vars(module), "torch": torch, "model": models("bert"), "model_inputs": model_inputs}
    tests = [test for test in doctest.DocTestFinder().find(module, extraglobs=given) if test.examples]
    runner = doctest.DocTestRunner()
    results = [runner.run(test) for test in tests]
    assert results
    assert all(result.failed == 0 for result in results)
