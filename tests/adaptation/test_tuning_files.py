"""What a tuning keeps beside its models, and what is told when it is damaged."""

import json
import shutil

import pytest
from adaptation.small_task import small_data, small_model

from infoflow.adaptation import TuneConfig, tune
from infoflow.foundation import UserError

KEY_FILE, RESULTS_FILE, TASK_FILE = "tuning.json", "results.json", "task.json"
CONFIG = TuneConfig(method="frozen", learning_rates=(1e-2,), seeds=(0,), head_epochs=1, batch_examples=16, device="cpu")


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tuned") / "run"
    return tune(small_model(), small_data(24), CONFIG, folder), folder


@pytest.fixture
def folder(finished, tmp_path):
    shutil.copytree(finished[1], tmp_path / "run")
    return tmp_path / "run"


def again(folder):
    return tune(small_model(), small_data(24), CONFIG, folder)


def one_file(folder, name):
    (path,) = folder.rglob(name)
    return path


def test_what_is_written_is_read(finished, folder):
    whole, found = finished[0], again(folder)
    assert found.scores.equals(whole.scores)
    assert found.answers.equals(whole.answers)


@pytest.mark.parametrize("name", [KEY_FILE, RESULTS_FILE])
@pytest.mark.parametrize("content", [b"", b"[]", b"null", b"{}", b"\xff", b"[" * 100_000, b'{"a":'])
def test_a_damaged_file_gets_one_message(folder, name, content):
    one_file(folder, name).write_bytes(content)
    with pytest.raises(UserError, match="damaged"):
        again(folder)


@pytest.mark.parametrize("field", ["key", "rates"])
@pytest.mark.parametrize("value", [None, [1], "x"])
def test_a_field_of_another_kind(folder, field, value):
    path = one_file(folder, KEY_FILE)
    path.write_text(json.dumps({**json.loads(path.read_text()), field: value}))
    with pytest.raises(UserError, match="damaged"):
        again(folder)


def test_every_changed_number_of_the_results_is_found(folder):
    path, task = one_file(folder, RESULTS_FILE), one_file(folder, TASK_FILE)
    whole = path.read_text()
    rows = json.loads(whole)
    rows["scores"][0]["value"] += 0.1
    path.write_text(json.dumps(rows))
    with pytest.raises(UserError, match="only this seed is trained again"):
        again(folder)
    path.write_text(whole)
    task.write_text(json.dumps({**json.loads(task.read_text()), "seed": 1}))
    with pytest.raises(UserError, match=TASK_FILE):
        again(folder)


def test_results_of_before_there_were_digests(finished, folder):
    path = one_file(folder, RESULTS_FILE)
    rows = json.loads(path.read_text())
    del rows["digest"]
    path.write_text(json.dumps(rows))
    assert again(folder).answers.equals(finished[0].answers)
