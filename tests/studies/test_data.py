"""The parts of a study's corpus: shares of it, or parts that were published with it."""

import dataclasses
from pathlib import Path

import pytest

from infoflow.corpus import SPLIT_RULES, tokenizer_digest
from infoflow.foundation import UserError
from infoflow.studies import CorpusPlan, StudyPlan, prepare


def write_pairs(path: Path, pairs: list[tuple[str, str]]) -> str:
    path.write_text("".join(f"{source}\t{target}\n" for source, target in pairs), encoding="utf-8")
    return str(path)


PAIRS = [(f"the cat sees {number} dogs", f"le chat voit {number} chiens") for number in range(60)]


@pytest.fixture
def published(tmp_path: Path) -> CorpusPlan:
    validation = [("the cat sees 7 dogs", "x"), ("A  bird sings", "un oiseau"), ("two birds sing", "deux oiseaux")]
    test = [("The CAT sees 9  dogs", "y"), ("a bird sings", "l'oiseau chante"), ("the cat sees 9 dogs", "z")]
    return CorpusPlan(
        name=write_pairs(tmp_path / "train.tsv", PAIRS),
        validation_name=write_pairs(tmp_path / "validation.tsv", validation),
        test_name=write_pairs(tmp_path / "test.tsv", test),
        vocabulary=300,
    )


def test_published_parts_are_taken_whole_and_leak_nothing(published: CorpusPlan, tmp_path: Path) -> None:
    data = prepare(StudyPlan(corpus=published), tmp_path)
    assert list(data.test.column("text")) == ["The CAT sees 9  dogs", "a bird sings", "the cat sees 9 dogs"]
    assert list(data.analysed.column("text")) == ["a bird sings", "the cat sees 9 dogs"]
    assert list(data.validation.column("text")) == ["the cat sees 7 dogs", "two birds sing"]
    assert len(data.train) == 58
    assert not {"the cat sees 7 dogs", "the cat sees 9 dogs"} & set(data.train.column("text"))


def test_another_domain_holds_no_sentence_of_the_study_and_changes_no_key(
    published: CorpusPlan, tmp_path: Path
) -> None:
    pairs = [("The cat sees 3  dogs", "x"), ("news of the day", "y"), ("News of the day", "z"), ("a bird sings", "u")]
    pairs += [("two birds  sing", "v"), ("a bird sang", "w")]
    plan = dataclasses.replace(published, transfer_name=write_pairs(tmp_path / "news.tsv", pairs))
    data = prepare(StudyPlan(corpus=plan), tmp_path)
    assert data.other_domain is not None
    assert list(data.other_domain.column("text")) == ["news of the day", "a bird sang"]
    assert data.key == prepare(StudyPlan(corpus=published), tmp_path).key
    (tmp_path / "plain.txt").write_text("one language\n")
    with pytest.raises(UserError, match="has translations"):
        prepare(StudyPlan(corpus=dataclasses.replace(plan, transfer_name=str(tmp_path / "plain.txt"))), tmp_path)


def test_one_published_part_leaves_the_other_to_its_share(published: CorpusPlan, tmp_path: Path) -> None:
    plan = dataclasses.replace(published, validation_name="", validation=0.2)
    data = prepare(StudyPlan(corpus=plan), tmp_path)
    assert len(data.test) == 3
    assert 2 < len(data.validation) < 30
    assert len(data.train) + len(data.validation) == 60 - 1


def test_the_data_depends_on_the_content_of_published_parts(published: CorpusPlan, tmp_path: Path) -> None:
    before = prepare(StudyPlan(corpus=published), tmp_path).key
    assert prepare(StudyPlan(corpus=published), tmp_path).key == before
    write_pairs(Path(published.test_name), [("another sentence", "une autre phrase")])
    assert prepare(StudyPlan(corpus=published), tmp_path).key != before


def test_keys_of_plans_that_split_by_the_source_are_those_of_earlier_versions(tmp_path: Path) -> None:
    """Folders of earlier runs hold `tokenizers-KEY`: another key would train all their models again."""
    plan = CorpusPlan(name="grammar:600", vocabulary=150, test=0.3, validation=0.1, split="source")
    assert prepare(StudyPlan(corpus=plan), tmp_path).key == "3eb22e078c6d5a74"


def test_published_parts_must_fit(published: CorpusPlan, tmp_path: Path) -> None:
    (tmp_path / "alone.txt").write_text("one language only\n")
    plan = dataclasses.replace(published, test_name=str(tmp_path / "alone.txt"))
    with pytest.raises(UserError, match=r"alone.* has none"):
        prepare(StudyPlan(corpus=plan), tmp_path)
    plan = dataclasses.replace(published, test_name=published.name)
    with pytest.raises(UserError, match="none is left"):
        prepare(StudyPlan(corpus=plan), tmp_path)


def test_the_rule_of_the_split_is_a_setting_and_its_default_the_strictest(tmp_path: Path) -> None:
    verbs = ["sees", "likes", "sings to", "listens to"]
    pairs = [(f"dog {n // 2} {verbs[n % 4]} cat {n // 2}", f"phrase {n % 200}") for n in range(400)]
    plan = CorpusPlan(name=write_pairs(tmp_path / "a.tsv", pairs), vocabulary=150, test=0.1, validation=0.1)
    data = {rule: prepare(StudyPlan(corpus=dataclasses.replace(plan, split=rule)), tmp_path) for rule in SPLIT_RULES}
    assert prepare(StudyPlan(corpus=plan), tmp_path).key == data["near-duplicates"].key
    assert len({each.key for each in data.values()}) == 3
    targets = {rule: set(each.test.column("translation")) for rule, each in data.items()}
    assert targets["source"] & set(data["source"].train.column("translation"))
    assert not targets["both-sides"] & set(data["both-sides"].train.column("translation"))
    assert len(data["near-duplicates"].train) < len(data["both-sides"].train) < len(data["source"].train)


def test_an_unknown_rule_of_the_split_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"corpus\.split must be one of .*near-duplicates.* Got .hash."):
        StudyPlan.from_json({"corpus": {"split": "hash"}})


def test_what_is_in_no_part_is_counted_with_its_reason(published: CorpusPlan, tmp_path: Path) -> None:
    plan = dataclasses.replace(published, max_words=5, sentences=40)
    long = "this sentence has more than five words"
    write_pairs(Path(plan.name), [*PAIRS, (long, "a"), (f"Also {long}", "b")])
    write_pairs(Path(plan.test_name), [("The cat sees 9  dogs", "rien"), (long, "c")])
    kept = prepare(StudyPlan(corpus=plan), tmp_path).parts.train.column("translation")
    write_pairs(Path(plan.test_name), [("The cat sees 9  dogs", next(iter(kept))), (long, "c")])
    parts = prepare(StudyPlan(corpus=plan), tmp_path).parts
    assert parts.facts() == {
        "rule": None,
        "left_out": {
            "corpus": {"not of 1 to 5 words": 2},
            "test": {"not of 1 to 5 words": 1},
            "train": {"source in a published part": 2, "more than corpus.sentences": 18},
        },
        "leakage": {
            "validation": {"sources": 0.0, "targets": 0.0, "near_sources": 1 / 3, "near_targets": 0.0},
            "test": {"sources": 0.0, "targets": 1.0, "near_sources": 1.0, "near_targets": 1.0},
        },
    }


def test_every_row_of_a_split_corpus_is_in_a_part_or_counted(tmp_path: Path) -> None:
    plan = CorpusPlan(name="grammar:2000", vocabulary=150, max_words=9, sentences=600)
    parts = prepare(StudyPlan(corpus=plan), tmp_path).parts
    assert parts.rule == "near-duplicates"
    assert set(parts.left_out) >= {"corpus", "train"}
    lost = sum(count for reasons in parts.left_out.values() for count in reasons.values())
    assert len(parts.train) + len(parts.validation) + len(parts.test) + lost == 2000
    assert set(parts.facts()["leakage"]["test"].values()) == {0.0}


@pytest.mark.parametrize("name", ["source/tokenizer.json", "target/tokenizer_config.json", "seal.json"])
@pytest.mark.parametrize("damage", ["cut", "flipped", "removed", "folder"])
def test_damaged_tokenizers_are_trained_again(published: CorpusPlan, tmp_path: Path, name: str, damage: str) -> None:
    before = prepare(StudyPlan(corpus=published), tmp_path)
    (folder,) = tmp_path.glob("tokenizers-*")
    path = folder / name
    content = path.read_bytes()
    path.unlink()
    if damage == "folder":
        path.mkdir()
    elif damage != "removed":
        half = len(content) // 2
        changed = bytes([content[half] ^ 1]) + content[half + 1 :] if damage == "flipped" else b""
        path.write_bytes(content[:half] + changed)
    after = prepare(StudyPlan(corpus=published), tmp_path)
    assert tokenizer_digest(after.tokenizer) == tokenizer_digest(before.tokenizer)
    assert after.target_tokenizer is not None
    assert before.target_tokenizer is not None
    assert tokenizer_digest(after.target_tokenizer) == tokenizer_digest(before.target_tokenizer)
    assert (folder / "source" / "tokenizer.json").is_file()


def test_a_table_s_columns_are_read_as_the_plan_names_them(tmp_path: Path) -> None:
    """The same sentences from two columns of a table are the same data."""
    write_pairs(tmp_path / "pairs.tsv", PAIRS)
    write_pairs(tmp_path / "table.tsv", [("en", "fr"), *PAIRS])
    plain = CorpusPlan(name=str(tmp_path / "pairs.tsv"), validation=0.2, test=0.2, vocabulary=300)
    named = dataclasses.replace(plain, name=str(tmp_path / "table.tsv"), text_column="en", translation_column="fr")
    data, expected = prepare(StudyPlan(corpus=named), tmp_path), prepare(StudyPlan(corpus=plain), tmp_path)
    assert (data.train.digest, data.test.digest) == (expected.train.digest, expected.test.digest)
    with pytest.raises(UserError, match="Its columns: en, fr"):
        prepare(StudyPlan(corpus=dataclasses.replace(named, text_column="de")), tmp_path)
