"""What a tuning keeps beside its models, and what is told when it is damaged."""

import json

import pytest

from infoflow.adaptation._tuned import TASK_FILE
from infoflow.adaptation._tuning_files import (
    KEY_FILE,
    RESULTS_FILE,
    read_key,
    read_results,
    write_key,
    write_results,
)
from infoflow.foundation import UserError

SCORES = [{"metric": "accuracy", "value": 0.1 + 0.2, "replicates": [0.5, float("nan")]}]
ANSWERS = [{"example": 0, "answer": "caf\u00e9 \ud800"}]


@pytest.fixture
def folder(tmp_path):
    (tmp_path / TASK_FILE).write_text('{"seed": 0}')
    write_results(tmp_path, SCORES, ANSWERS)
    write_key(tmp_path, {"model": "m", "epochs": 4}, {"0.001": 0.5, "1e-05": -1e9})
    return tmp_path


def test_what_is_written_is_read(folder):
    found = read_results(folder)
    assert found["answers"] == ANSWERS
    assert found["scores"][0]["value"] == 0.1 + 0.2
    assert read_key(folder) == {"key": {"model": "m", "epochs": 4}, "rates": {"0.001": 0.5, "1e-05": -1e9}}
    assert read_key(folder / "nothing") is None


@pytest.mark.parametrize("name", [KEY_FILE, RESULTS_FILE])
@pytest.mark.parametrize("content", [b"", b"[]", b"3", b"null", b"{}", b"\xff", b"[" * 100_000, b'{"a":'])
def test_a_damaged_file_gets_one_message(folder, name, content):
    (folder / name).write_bytes(content)
    with pytest.raises(UserError, match="damaged"):
        (read_key if name == KEY_FILE else read_results)(folder)


@pytest.mark.parametrize("field", ["key", "rates"])
@pytest.mark.parametrize("value", [None, 3, [], [1], "x"])
def test_a_field_of_another_kind(folder, field, value):
    whole = json.loads((folder / KEY_FILE).read_text())
    (folder / KEY_FILE).write_text(json.dumps({**whole, field: value}))
    with pytest.raises(UserError, match="damaged"):
        read_key(folder)


def test_every_changed_number_of_the_results_is_found(folder):
    whole = (folder / RESULTS_FILE).read_text()
    (folder / RESULTS_FILE).write_text(whole.replace("0.5", "0.6"))
    with pytest.raises(UserError, match="this seed alone is trained again"):
        read_results(folder)
    (folder / RESULTS_FILE).write_text(whole)
    (folder / TASK_FILE).write_text('{"seed": 1}')
    with pytest.raises(UserError, match=TASK_FILE):
        read_results(folder)


def test_results_of_before_there_were_digests(folder):
    rows = json.loads((folder / RESULTS_FILE).read_text())
    del rows["digest"]
    (folder / RESULTS_FILE).write_text(json.dumps(rows))
    assert read_results(folder)["answers"] == ANSWERS
