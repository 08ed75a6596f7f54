"""The report of a study that goes on: some models are measured, others are not yet."""

import pandas as pd
import pytest
from drawn import tell
from whole_study import InMemory, keyed

PARTS = {
    "controls alone": lambda frame: ~frame["trained"].astype(bool),
    "one control": lambda frame: ~frame["trained"].astype(bool) & (_side(frame, "objective") == "causal-lm"),
    "trained models alone": lambda frame: frame["trained"].astype(bool),
    "one seed of one objective": lambda frame: (_side(frame, "seed") == 1) & (_side(frame, "objective") == "masked-lm"),
}
AT_THE_START = ("training_runs", "learning_curves")  # of the training, which is over


def _side(frame: pd.DataFrame, name: str) -> pd.Series:
    return frame[name if name in frame else f"{name}_a"]


SLOW = set(PARTS) - {"one control"}


@pytest.mark.parametrize("part", [pytest.param(one, marks=pytest.mark.slow) if one in SLOW else one for one in PARTS])
def test_no_section_is_called_damaged(whole, part):
    tables = {}
    for name, frame in whole.tables.items():
        kept = frame[PARTS[part](frame)] if keyed(frame) and "trained" in frame and name not in AT_THE_START else frame
        if len(kept):
            tables[name] = kept.reset_index(drop=True)
    story = tell(InMemory(whole.read(), tables))
    assert story.left_out == []
    if "control" in part:
        notes = [note for section in story.sections for note in section.notes]
        assert any(note.startswith("Not measured yet: mutual_information.") for note in notes)
