"""Keys of a study's tasks."""

from infoflow.studies import StudyPlan
from infoflow.studies._study_tasks import StudyTasks


def test_other_tags_of_the_same_words_are_another_task(tmp_path):
    path = tmp_path / "layers.conll"
    path.write_text("a O O B-X\nDog O B-X O\n\nthe B-X O O\ncat O B-X B-X\n")
    files = {"train": str(path), "dev": str(path), "test": str(path)}
    tables = [
        {"name": name, **files, "columns": columns}
        for name, columns in (("one", ["tags=tag_1"]), ("two", ["tags=tag_2"]))
    ]
    plan = StudyPlan.from_json({"tune": tables})
    tasks = StudyTasks(plan, tmp_path / "note", prepared=False)
    assert tasks.digest(plan.tune[0]) != tasks.digest(plan.tune[1])
