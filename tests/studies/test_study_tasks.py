"""Keys of a study's tasks."""

import pytest

from infoflow.foundation import SilentDisplay, UserError, use_display
from infoflow.studies import StudyPlan
from infoflow.subjects.adaptation.stages import StudyTasks


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


class Notes(SilentDisplay):
    def __init__(self):
        self.said = []

    def note(self, text):
        self.said.append(text)


def test_too_few_examples_are_told_once_and_refused_before_anything_is_trained(tmp_path):
    path = tmp_path / "rare.tsv"
    path.write_text("".join(f"{label}\ttext {n} of {label}\n" for label in "aaaaabbbbc" for n in range(9)))

    def plan(*examples):
        parts = dict.fromkeys(("train", "dev", "test"), str(path))
        table = {"name": "rare", **parts, "columns": ["label=1", "text=2"], "examples": list(examples)}
        return StudyPlan.from_json({"tune": [table]})

    def tasks(*examples, prepared=False):
        return StudyTasks(plan(*examples), tmp_path / "note", prepared)

    with use_display(display := Notes()):
        found = tasks(4, 50, 0)
        found.sizes(plan(4, 50, 0).tune[0])
        tasks(4, 50, 0, prepared=True)
    assert display.said == ['rare: 4 training examples do not cover all 3 classes: there is none of "c".']
    with pytest.raises(UserError, match=r"examples of at least two classes\. The first 1 of rare are all"):
        tasks(1, 0)


def test_a_plan_may_say_that_examples_have_several_labels(tmp_path):
    path = tmp_path / "several.tsv"
    path.write_text("".join(f"{('a|b', 'a', 'b')[n % 3]}\ttext number {n} of all\n" for n in range(9)))

    def labels(**said):
        parts = dict.fromkeys(("train", "dev", "test"), str(path))
        plan = StudyPlan.from_json({"tune": [{"name": "several", **parts, **said}]})
        return set(StudyTasks(plan, tmp_path / f"note-{len(said)}", prepared=False).data(plan.tune[0]).labels)

    assert labels() == {"a|b", "a", "b"}
    assert labels(multi=True) == {"a", "b"}
