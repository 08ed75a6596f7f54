"""`infoflow dynamics`: what it shows, and what it says where nothing was recorded."""

from infoflow.results import RunFolder


def test_a_recorded_study_shows_who_lowered_the_loss(infoflow, tmp_path) -> None:
    from dynamics.synthetic import Recordings, write_run

    write_run(tmp_path / "recorded", Recordings())
    answer = infoflow("dynamics", tmp_path / "recorded", "--top", "3")
    assert answer.code == 0, answer.err
    lines = answer.out.splitlines()
    assert lines[0] == "causal-lm: loss 8.000 before, 3.092 after training"
    assert "masked-lm: what lowered the loss most" in lines
    start = lines.index("masked-lm: what lowered the loss most")
    assert lines[start + 1] == "stack encoder"
    assert lines[start + 3].split()[:2] == ["embeddings", "-1"]
    start = lines.index("Times that a component, summed over layers, raised the loss")
    assert lines[start + 1].split() == ["causal-lm", "masked-lm", "translation"]
    assert ["query", "0", "(0.0%)", "30", "(3.0%)", "2", "(0.1%)"] in [line.split() for line in lines[start:]]
    assert "How alike shares over layers and components are" in lines
    assert lines[-1] == f"Report: {tmp_path / 'recorded' / 'report.html'}"
    assert "Which parts of the model did the learning?" in (tmp_path / "recorded" / "report.html").read_text()


def test_a_run_without_recording_is_told_how_to_record(infoflow, tmp_path) -> None:
    RunFolder(tmp_path / "plain").update(kind="study")
    answer = infoflow("dynamics", tmp_path / "plain")
    assert answer.code == 2
    assert "has no recording of loss changes" in answer.err
    assert "--set dynamics.on=true" in answer.err


def test_a_lost_table_of_a_recording_is_told(infoflow, tmp_path) -> None:
    from dynamics.synthetic import Recordings, write_run

    write_run(tmp_path / "recorded", Recordings())
    (tmp_path / "recorded" / "tables" / "allocation_windows.parquet").unlink()
    answer = infoflow("dynamics", tmp_path / "recorded")
    assert answer.code == 2
    assert "lacks the table allocation_windows of its recording" in answer.err


def test_several_studies_are_compared(infoflow, tmp_path) -> None:
    from dynamics.synthetic import Recordings, write_run

    for number, name in enumerate(("small", "large")):
        write_run(tmp_path / name, Recordings(corpus=number)).update(kind="study")
    answer = infoflow("dynamics", tmp_path / "small", tmp_path / "large", "--out", tmp_path / "both")
    assert answer.code == 0, answer.err
    assert "Same objective, two corpora: similarity of shares over layers and components" in answer.out
    assert "dynamics:V3: holds." in answer.out
    answer = infoflow("dynamics", tmp_path / "small", "--out", tmp_path / "both")
    assert answer.code == 2
    assert "--out only applies to several" in answer.err
