"""What `report --to` stores on a hub, and what it refuses before anything is stored."""

import re
from pathlib import Path

import pandas as pd
import pytest
from datasets import load_dataset
from support.writable_hub import writable_hub

from infoflow.foundation import SilentDisplay, UserError, in_markdown, use_display
from infoflow.report import upload_run
from infoflow.results import RunFolder

# Of the client itself, where it uploads large files without Xet.
pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")


class _Heard(SilentDisplay):
    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)


@pytest.fixture
def run(tmp_path, monkeypatch):
    from synthetic_run import make_analysis

    def page(run: RunFolder, anonymous: bool) -> Path:
        run.report.write_text(f"<p>anonymous: {anonymous}</p>" * 100)
        return run.report

    monkeypatch.setattr("infoflow.report._to_hub.write_report", page)
    made = make_analysis(tmp_path / "run", tables=("head_entropy", "layer_distance"))
    made.update(title="Heads | of <b>two</b>\n---\nlicense: mit")
    return made


def test_a_run_is_a_static_space_and_a_data_set_that_datasets_reads(run, monkeypatch, tmp_path):
    with writable_hub(monkeypatch) as hub, use_display(_Heard()) as display:
        addresses = upload_run(run, "hf:somebody/tiny")
    assert addresses == [f"{hub.address}/spaces/somebody/tiny", f"{hub.address}/datasets/somebody/tiny"]
    space, data = (hub.repositories[f"{kind}/somebody/tiny"] for kind in ("spaces", "datasets"))
    assert (space.sdk, space.private, data.private) == ("static", True, True)
    assert space.files["index.html"] == run.report.read_bytes()
    assert space.card["sdk"] == "static"
    assert space.card["title"] == data.card["pretty_name"] == "Heads | of <b>two</b> --- license: mit"
    assert "license" not in space.card
    assert b"<b>" not in space.files["README.md"].partition(b"\n---\n")[2]
    assert data.card["configs"] == [
        {"config_name": name, "data_files": f"tables/{name}.parquet"} for name in ("head_entropy", "layer_distance")
    ]
    page = data.files["README.md"].decode()
    for column in run.tables.stored("head_entropy").schema.columns:
        assert f"| {in_markdown(column.name)} | {in_markdown(column.dtype)} |" in page
    for path, content in data.files.items():
        (tmp_path / "copy" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "copy" / path).write_bytes(content)
    read = load_dataset(str(tmp_path / "copy"), "head_entropy", split="train", cache_dir=str(tmp_path / "cache"))
    ours = run.tables["head_entropy"][read.column_names]
    pd.testing.assert_frame_equal(read.to_pandas(), ours, check_dtype=False, check_like=True)
    (said,) = [text for text in display.notes if "Uploading" in text]
    assert re.search(r"report \(.* kB\) as the private Space .*, and 2 tables .* the private data set", said)


def test_a_second_upload_replaces_the_first_and_nothing_of_others(run, monkeypatch):
    with writable_hub(monkeypatch) as hub:
        upload_run(run, "hf:somebody/tiny", public=True)
        data = hub.repositories["datasets/somebody/tiny"]
        assert not data.private
        data.files["notes.txt"] = b"mine"
        run.tables.remove(["layer_distance"])
        with pytest.raises(UserError, match="is public, so everybody could read this run"):
            upload_run(run, "hf:somebody/tiny")
        upload_run(run, "hf:somebody/tiny", public=True)
        assert sorted(data.files) == ["README.md", "notes.txt", "tables/head_entropy.parquet"]
        hub.repositories["spaces/somebody/tiny"].files["README.md"] = b"---\nsdk: gradio\n---\n"
        hub.asked.clear()
        with pytest.raises(UserError, match="The Space somebody/tiny holds something that infoflow did not write"):
            upload_run(run, "hf:somebody/tiny", public=True)
        assert not hub.written


def test_an_anonymous_upload_names_no_local_model(run, monkeypatch, tmp_path):
    from synthetic_run import make_analysis

    secret = make_analysis(tmp_path / "other", name="secret-model", tables=("head_entropy",))
    secret.update(plan={"models": ["/home/me/secret-model"]}, files=["models"])
    with writable_hub(monkeypatch) as hub:
        upload_run(secret, "hf:somebody/tiny", anonymous=True)
    stored = [*hub.repositories.values()]
    assert all(b"secret-model" not in content for one in stored for content in one.files.values())
    assert "secret-model" in secret.tables["head_entropy"]["model"].tolist()


@pytest.mark.parametrize(
    "to", ["somebody/tiny", "hf:tiny", "hf:a/b/c", "hf:some body/tiny", "hf:", "hf:../x", "hf:a/--"]
)
def test_names_that_no_repository_can_have(run, monkeypatch, to):
    with writable_hub(monkeypatch) as hub, pytest.raises(UserError, match="--to must be hf:USER/NAME"):
        upload_run(run, to)
    assert not hub.asked
    assert not run.report.exists()


def test_without_a_token_that_may_write_nothing_is_stored(run, monkeypatch):
    with writable_hub(monkeypatch, token=None) as hub:
        with pytest.raises(UserError, match="hf auth login"):
            upload_run(run, "hf:somebody/tiny")
        assert not hub.asked
    with writable_hub(monkeypatch) as hub:
        with pytest.raises(UserError, match=r"HTTP 403.*\n.*may write there"):
            upload_run(run, "hf:others/tiny")
        assert not hub.repositories
        monkeypatch.setenv("HF_TOKEN", "hf_revoked")
        with pytest.raises(UserError, match="HTTP 401"):
            upload_run(run, "hf:somebody/tiny")
    with pytest.raises(UserError, match="Check the network"):  # that hub is gone
        upload_run(run, "hf:somebody/tiny")


def test_a_data_set_has_the_licence_of_the_sentences_that_it_quotes(run, monkeypatch):
    run.update(corpus={**run.read()["corpus"], "name": "tatoeba-en-fr"})
    with writable_hub(monkeypatch) as hub:
        upload_run(run, "hf:somebody/tiny")
    card = hub.repositories["datasets/somebody/tiny"].card
    assert (card["license"], card["language"]) == ("cc-by-2.0", ["en", "fr"])


def test_the_command_shows_both_addresses_and_refuses_what_does_not_fit(run, monkeypatch, capsys, tmp_path):
    from infoflow.cli import run as infoflow

    path = str(run.path)
    with writable_hub(monkeypatch) as hub:
        assert infoflow(["report", path, "--to=hf:somebody/tiny", "--public", "--log=plain"]) == 0
    said = capsys.readouterr()
    assert said.out.split() == [f"{hub.address}/spaces/somebody/tiny", f"{hub.address}/datasets/somebody/tiny"]
    assert "as the public Space somebody/tiny" in said.err
    for options, message in (
        (["--public"], "--public applies to what is uploaded: add --to hf:USER/NAME"),
        (["--to=hf:a/b", f"--figures={tmp_path / 'f'}"], "--to uploads the report, and --figures exports its figures"),
        (["--to=a/b"], "--to must be hf:USER/NAME"),
    ):
        assert infoflow(["report", path, *options]) == 2
        assert message in capsys.readouterr().err
    assert infoflow(["report", str(tmp_path / "none"), "--to=hf:a/b"]) == 2
