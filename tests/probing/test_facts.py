"""Facts and prompts: what is read from files, and what is refused."""

import gzip
import json

import pytest

from infoflow.foundation import UserError
from infoflow.probing import ClozeFact, Facts, Prompt, read_facts


def fact(subject, object, relation="capital"):
    return ClozeFact(relation=relation, subject=subject, object=object)


def prompt(template, family="manual", relation="capital"):
    return Prompt(relation=relation, template=template, family=family)


def write(path, text):
    path.write_text(text, encoding="utf-8")
    return path


def test_a_folder_of_facts_and_prompts(tmp_path):
    with gzip.open(tmp_path / "facts.tsv.gz", "wt") as file:
        file.write("capital\tfrance\tparis\ncapital\titaly\trome\n")
    write(tmp_path / "facts-train.tsv", "capital\tspain\tmadrid\ncapital\titaly\trome\n")
    write(tmp_path / "relations.jsonl", json.dumps({"relation": "capital", "template": "[X] has [Y] ."}) + "\n")
    write(tmp_path / "lpaqa-prompts.tsv", "mine\tcapital\t[Y] of [X] .\nparaphrase\tcapital\t[X] : [Y]\n")
    read = read_facts(tmp_path)
    assert read.facts == (fact("france", "paris"), fact("italy", "rome"))
    assert read.train == (fact("spain", "madrid"),)  # italy is measured, so nothing is learned of it
    assert [(one.family, one.template) for one in read.prompts] == [
        ("manual", "[X] has [Y] ."), ("mined", "[Y] of [X] ."), ("paraphrased", "[X] : [Y]"),
    ]  # fmt: skip
    assert read.left_out == {"training facts about measured subjects": 1}
    assert read.objects == ("madrid", "paris", "rome")


def test_names_of_columns_and_of_lama(tmp_path):
    table = write(tmp_path / "a.tsv", "object\tsubject\trelation\ttemplate\nparis\tfrance\tcapital\t[X] [Y]\n")
    line = {"sub_label": "france", "obj_label": "paris", "predicate_id": "capital", "template": "[X] [Y]"}
    assert read_facts(table).facts == read_facts(write(tmp_path / "b.jsonl", json.dumps(line))).facts
    plain = write(tmp_path / "c.tsv", "capital\tfrance\tparis\n")
    assert read_facts(plain, template="[X] [Y]").digest == read_facts(table).digest


def test_what_is_left_out_is_counted():
    facts = Facts(
        facts=(fact("france", "paris"), fact("france", "paris"), fact("x", "y", "other")),
        prompts=(prompt("[X] [Y]"), prompt("nothing"), prompt("[X] [Y] [Y]")),
    )
    assert facts.facts == (fact("france", "paris"),)
    assert facts.left_out == {
        "templates without one [X] and one [Y]": 2,
        "facts of relations without a template": 1,
        "facts given twice": 1,
    }


def test_more_facts_extend_fewer():
    facts = Facts(facts=tuple(fact(f"s{i}", f"o{i}") for i in range(20)), prompts=(prompt("[X] [Y]"),))
    assert facts.chosen("capital", 12)[:5] == facts.chosen("capital", 5)
    assert set(facts.chosen("capital", 0)) == set(facts.facts)
    backwards = Facts(facts=facts.facts[::-1], prompts=facts.prompts)
    assert backwards.chosen("capital", 5) == facts.chosen("capital", 5)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.tsv", "capital\tfrance\n", "line 1: 3 tab-separated cells"),
        ("a.tsv", "capital\t\tparis\n", "Its subject is missing"),
        ("a.tsv", "", "holds no facts"),
        ("a.tsv", "capital\tfrance\tparis\n", "No fact has a template"),
        ("a.jsonl", "{\n", "line 1"),
        ("a.jsonl", "[1]\n", "must hold an object"),
        ("a.jsonl", '{"relation": 3}\n', "relation must be text"),
        ("a.csv", "x", "Got"),
    ],
)
def test_bad_files_are_the_users_mistake(tmp_path, name, text, message):
    with pytest.raises(UserError, match=message.replace("[", r"\[")):
        read_facts(write(tmp_path / name, text))


def test_missing_files(tmp_path):
    with pytest.raises(UserError, match="no file"):
        read_facts(tmp_path / "none.tsv")
    with pytest.raises(UserError, match=r"holds no facts\.tsv"):
        read_facts(tmp_path)
