"""`infoflow dynamics`: what it shows, and what it says where nothing was recorded."""


def test_a_recorded_study_shows_who_lowered_the_loss(infoflow, finished, plan, tmp_path) -> None:
    settings = ("dynamics.on=true", "dynamics.tokens=100", "dynamics.held_out_tokens=0", "training.updates=4")
    changes = [
        part
        for setting in (*settings, 'objectives=["masked-lm"]', "analysis.untrained=false")
        for part in ("--set", setting)
    ]
    study = infoflow("study", plan, "--processes=1", "--out", tmp_path / "recorded", *changes)
    assert study.code == 0, study.err
    answer = infoflow("dynamics", tmp_path / "recorded", "--top", "3")
    assert answer.code == 0, answer.err
    lines = answer.out.splitlines()
    assert lines[0].startswith("masked-lm: loss ")
    assert "masked-lm: what lowered the loss most" in lines
    assert any(line.split()[:2] == ["embeddings", "encoder"] for line in lines)
    assert "masked-lm: components as sums over layers" in lines
    assert lines[-1] == f"Report: {tmp_path / 'recorded' / 'report.html'}"
    assert "Which parts of the model did the learning?" in (tmp_path / "recorded" / "report.html").read_text()


def test_a_study_without_recording_is_told_how_to_record(infoflow, finished) -> None:
    answer = infoflow("dynamics", finished)
    assert answer.code == 2
    assert "holds no recording of its trainings" in answer.err
    assert "--set dynamics.on=true" in answer.err
