"""A study's stage that aligns each masked LM to its translation encoder."""

import dataclasses

import pandas as pd
import pytest

from infoflow.studies import Run, StudyPlan, graph
from infoflow.subjects.alignment.stages import Align


def changed(plan: StudyPlan, **settings) -> StudyPlan:
    return dataclasses.replace(plan, alignment=dataclasses.replace(plan.alignment, **settings))


@pytest.mark.slow
def test_every_seed_is_aligned_beside_its_controls(grown_run: Run) -> None:
    table = grown_run.tables["alignment"]
    assert set(table["seed"]) == {0, 1}
    assert set(table["kind"]) == {"aligned", "unaligned", "shuffled", "regulariser only", "implicit", "target"}
    assert set(zip(table["source_model"], table["target_model"], strict=True)) == {
        (f"masked-lm/seed-{seed}", f"translation/seed-{seed}") for seed in (0, 1)
    }
    scores = table[table["metric"] == "mse"].set_index(["seed", "kind"])["value"]
    for seed in (0, 1):
        assert scores[seed, "unaligned"] < scores[seed, "regulariser only"]


def test_bleu_stands_before_and_after(small_run: Run) -> None:
    table = small_run.tables["alignment"]
    bleu = table[table["metric"] == "bleu"]
    assert set(bleu["kind"]) == {"unaligned", "implicit", "target"}
    assert bleu["signature"].str.startswith("nrefs:").all()
    own = small_run.tables["task_scores"]
    own = own[(own["metric"] == "bleu") & own["trained"] & (own["objective"] == "translation")]
    target = bleu[bleu["kind"] == "target"].set_index("seed")["value"]
    assert target.to_dict() == own.set_index("seed")["value"].to_dict()


def test_it_is_not_done_twice(small_run: Run, small_plan: StudyPlan, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Align, "make", lambda self: pytest.fail("aligned again"))
    (stage,) = graph(small_plan, small_run.folder).of(Align)
    assert stage.is_done()
    stage.run()
    pd.testing.assert_frame_equal(
        stage.tables()["alignment"], pd.DataFrame(small_run.tables["alignment"]), check_like=True, check_dtype=False
    )


def test_what_it_depends_on(small_run: Run, small_plan: StudyPlan) -> None:
    def keys(plan: StudyPlan) -> list[str]:
        return [stage.key for stage in graph(plan, small_run.folder).of(Align)]

    (before,) = keys(small_plan)
    assert keys(dataclasses.replace(small_plan, analysis=dataclasses.replace(small_plan.analysis, clusters=7))) == [
        before
    ]
    first, second = keys(dataclasses.replace(small_plan, seeds=(0, 1)))
    assert first == before
    others = {*keys(changed(small_plan, learning_rate=2e-3)), *keys(changed(small_plan, pairs=0)), second}
    assert len(others | {before}) == 4


def test_a_study_may_go_without(small_run: Run, small_plan: StudyPlan) -> None:
    for plan in (changed(small_plan, on=False), dataclasses.replace(small_plan, objectives=("masked-lm",))):
        assert graph(plan, small_run.folder).of(Align) == []
