"""Two processes record what one does, up to the order of summation."""

from pathlib import Path

import numpy as np
import pytest
import torch
from dynamics.recorded import SCRIPT, run
from support.forked import run_together

from infoflow.dynamics import Recording


@pytest.mark.slow
def test_two_processes_record_what_one_does(tmp_path: Path) -> None:
    run_together(SCRIPT, tmp_path / "two", "--dropout", "0")
    run(tmp_path / "one", dropout=0.0)
    two, one = (Recording.read(tmp_path / name / "recording") for name in ("two", "one"))
    for table, column in (("windows", "loss_end"), ("steps", "value"), ("groups", "value")):
        values = [recording.tables[f"allocation_{table}"][column].to_numpy() for recording in (two, one)]
        # Training itself differs in its last bits, which Adam's first steps enlarge.
        np.testing.assert_allclose(values[0], values[1], rtol=0.02, atol=2e-4)
    agree = [
        (two.parameters[name] == one.parameters[name]).double().mean() for name in one.parameters if "hurt" in name
    ]
    assert float(torch.stack(agree).mean()) > 0.9
