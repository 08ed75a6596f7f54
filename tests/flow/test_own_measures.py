"""Measures in a file of the user's."""

import pytest

import infoflow
from infoflow import UserError, measure_of
from infoflow.flow import describe_measure, given_measures, load_measures
from infoflow.heads import Entropy

MEASURES = """
import infoflow

state_norm = infoflow.measure_of(lambda states: states.norm(dim=-1), name="state_norm", unit="length")
"""
CLASS = """
import pandas as pd
from infoflow.flow import Measure
from infoflow.results import Column, TableSchema

class Counted(Measure):
    table = TableSchema(
        name="counted", version=1, description="Batches.",
        columns=(Column(name="value", dtype="float64", unit="", description="batches"),),
    )
    needs = frozenset({"hidden"})

    def __init__(self):
        self._batches = 0

    def update(self, activations):
        self._batches += 1

    def merge(self, other):
        self._batches += other._batches

    def state_dict(self):
        return {}

    def load_state_dict(self, state):
        pass

    def result(self):
        return pd.DataFrame({"value": [float(self._batches)]})
"""
PAIR = """
from infoflow.representations import ModelDistance
class Mine(ModelDistance):
    pass
"""


@pytest.fixture
def measure_file(tmp_path):
    def written(text=MEASURES):
        path = tmp_path / "mine.py"
        path.write_text(text)
        return path

    return written


def names(measures):
    return [measure.name for measure in measures]


def test_measures_are_found_by_name_in_lists_and_as_classes(measure_file):
    assert names(load_measures(measure_file())) == ["state_norm"]
    assert names(load_measures(measure_file(CLASS))) == ["counted"]
    assert names(load_measures(measure_file(CLASS + "\nMINE = Counted()\n"))) == ["counted"]  # not made twice
    both = f"{MEASURES}\n{CLASS}\nALL = [state_norm, Counted()]"
    assert names(load_measures(measure_file(both))) == ["state_norm", "counted"]
    # A class of the package that the file imports is no measure of the file.
    assert names(load_measures(measure_file(f"from infoflow.heads import Entropy\n{MEASURES}"))) == ["state_norm"]


def test_a_base_class_is_not_made_but_what_derives_from_it(measure_file):
    derived = (
        "\nfrom dataclasses import replace\nclass Further(Counted):\n    table = replace(Counted.table, name='more')\n"
    )
    assert names(load_measures(measure_file(CLASS + derived))) == ["more"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = 1", "contains no measure"),
        ("import nothing_like_this", "line 1: ModuleNotFoundError"),
        ("x = 1\ny = (", "line 2: SyntaxError"),
        ("x = 1\nimport sys; sys.exit()", "line 2: SystemExit"),
        (MEASURES + "other = infoflow.measure_of(lambda x: x.sum(-1), name='state_norm')", "two in .* have it"),
        (MEASURES.replace('name="state_norm"', 'name="head_entropy"'), "the package has it"),
        (MEASURES.replace("infoflow.measure_of(", "infoflow.measure_of(3, *"), "line 4: TypeError"),
        (CLASS.replace("def merge", "def merged"), "lacks methods: merge"),
        (CLASS.replace("__init__(self)", "__init__(self, size)"), "needs arguments"),
        (CLASS.replace("self._batches = 0", "raise SystemExit"), r"Counted\(\) in .* failed: line 14: SystemExit"),
        (CLASS.replace("self._batches = 0", "self.setting = {}"), "setting is not a plain value"),
        (CLASS.replace('name="counted"', 'name="../x"'), "must be a word"),
        (CLASS.replace("    table =", "    tables ="), "its table must be a TableSchema"),
        (CLASS.replace('Column(name="value"', 'Column(name="seed"'), "the column seed says which model"),
        (PAIR, "pass it to infoflow.compare"),
    ],
)
def test_files_without_usable_measures_are_refused(measure_file, text, message):
    with pytest.raises(UserError, match=message):
        load_measures(measure_file(text), taken=["head_entropy"])


def test_a_file_that_is_none_is_named(tmp_path):
    with pytest.raises(UserError, match="There is no file"):
        load_measures(tmp_path / "none.py")
    with pytest.raises(UserError, match=r"must end in \.py"):
        load_measures(tmp_path)


def test_objects_are_checked_alike():
    one = measure_of(lambda states: states.norm(dim=-1), name="one")
    assert names(given_measures(one)) == ["one"]
    for measures, message in [([], "an empty list"), ([one, 3], "must be objects"), ([one, one], "two in measures")]:
        with pytest.raises(UserError, match=message):
            given_measures(measures)


def test_results_are_kept_by_the_text_of_the_file_and_by_name(measure_file):
    """Two functions differ in nothing that a key could see, but for their names."""
    two = MEASURES + "\nother = infoflow.measure_of(lambda states: states.sum(-1), name='other')"
    first, other = map(describe_measure, load_measures(measure_file(two)))
    assert first != other
    assert first == describe_measure(load_measures(measure_file(two))[0])
    assert first != describe_measure(load_measures(measure_file(two.replace("dim=-1", "dim=-1, p=1")))[0])
    mine = measure_of(lambda states: states.norm(dim=-1), name="one")
    assert describe_measure(given_measures(mine)[0]) != describe_measure(given_measures(mine)[0])
    assert "code" not in describe_measure(mine)


@pytest.mark.parametrize("wrong", ["raise ValueError('odd')", "raise SystemExit", "open('none.txt')"])
def test_code_that_fails_while_measuring_names_its_file_and_line(measure_file, matched_models, parallel_corpus, wrong):
    failing = load_measures(measure_file(CLASS.replace("self._batches += 1", wrong)))
    model = matched_models["masked-lm"]
    with pytest.raises(UserError, match=r"counted of .* failed: its own code raised an error: mine\.py, line 17: "):
        infoflow.measure(model, parallel_corpus, failing)
    with pytest.warns(UserWarning, match="counted of"):
        assert set(infoflow.measure(model, parallel_corpus, [*failing, Entropy()])) == {"head_entropy"}
