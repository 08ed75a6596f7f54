"""Words in all scripts: with their marks, and of scripts without spaces by their characters."""

import re
import unicodedata

import numpy as np
import pytest

from infoflow.foundation import UserError
from infoflow.models import contains_answer, exact_match, token_f1
from infoflow.retrieval import (
    HNSW,
    LexicalIndex,
    Passages,
    build_passage_index,
    open_passage_index,
    query_leakage,
    save_index,
    terms_of,
)

DIFFERENT = [
    ("दिन", "दान"),  # Hindi: day, gift
    ("กิน", "กัน"),  # Thai: eat, together
    ("கல்", "கால்"),  # Tamil: stone, leg
    ("בָּנָה", "בֵּנָה"),  # Hebrew with points
]


@pytest.mark.parametrize(("one", "other"), DIFFERENT)
def test_words_that_differ_in_a_mark_are_different(one, other):
    assert terms_of([one]) != terms_of([other])
    assert contains_answer(f"x {one} y", one)
    assert not contains_answer(f"x {one} y", other)
    leaked = query_leakage([one, other], [f"{one} ?"])
    assert leaked.repeated == (0,)


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("東京都", ["東京", "京都"]),
        ("猫", ["猫"]),
        ("犬と猫", ["犬と", "と猫"]),
        ("AI技術2020年", ["ai", "技術", "2020", "年"]),
        ("กินข้าว", ["กิน", "นข้", "ข้า", "าว"]),
        ("ສະບາຍ", ["ສະ", "ະບ", "ບາ", "າຍ"]),
        ("ｶﾞﾗｽ", ["ガラ", "ラス"]),
        ("한국어 문서", ["한국어", "문서"]),
        ("हिन्दी भाषा", ["हिन्दी", "भाषा"]),
    ],
)
def test_terms_of_scripts_without_spaces_are_pairs_of_characters(text, terms):
    assert terms_of([text]) == [terms]


def test_latin_text_has_the_terms_that_it_had():
    texts = [
        "The Beatles' (band)! 3.5 m_2 naïve Straße ǅ œuvre",
        "pêche, péché; Ελλάδα «Москва»",
        unicodedata.normalize("NFD", "pêche déjà-vu Ångström"),
        "1️⃣ it´s ½ ﬁne x² ❤️",
    ]
    before = [re.findall(r"\w+", unicodedata.normalize("NFKC", text).lower()) for text in texts]
    assert terms_of(texts) == before
    rng = np.random.default_rng(0)
    signs = [chr(number) for number in range(0x20, 0x250)]
    for _ in range(200):
        text = "".join(rng.choice(signs, 30)).replace("İ", "").replace("\u00ad", "")
        assert terms_of([text]) == [re.findall(r"\w+", unicodedata.normalize("NFKC", text).lower())]


def test_accents_are_part_of_a_word_whatever_their_form():
    assert terms_of(["pêche"]) != terms_of(["péché"])
    assert query_leakage(["la pêche"], ["le péché", "la peche"]).repeated == ()
    assert query_leakage(["la pêche"], [unicodedata.normalize("NFD", "La pêche!")]).repeated == (0,)


@pytest.mark.parametrize(
    ("passage", "answer", "holds"),
    [
        ("東京都に住む。", "東京", True),
        ("京都に住む。", "東京", False),
        ("犬がいる", "犬", True),
        ("ฉันกินข้าว", "ข้าว", True),
        ("ฉันกันข้าว", "กิน", False),
        ("मेरा दिन", "दिन", True),
    ],
)
def test_an_answer_in_a_script_without_spaces_is_found(passage, answer, holds):
    assert contains_answer(passage, answer) is holds


@pytest.mark.parametrize(
    ("texts", "asked", "first"),
    [
        (["私は東京に住んでいる", "彼は大阪で働く"], "大阪はどこ", 1),
        (["ฉันกินข้าว", "เราไปโรงเรียน"], "โรงเรียน", 1),
        (["यह दिन है", "यह दान है"], "दान", 1),
    ],
)
def test_passages_without_spaces_are_found(texts, asked, first):
    found = LexicalIndex(terms_of(texts)).search(terms_of([asked]), 2)
    assert found.ids[0, 0] == first


def test_an_index_of_other_terms_is_refused(tmp_path):
    passages = Passages.from_rows(["यह दिन है", "यह दान है"])
    build_passage_index(passages, tmp_path / "index")
    assert open_passage_index(tmp_path / "index").look_up(["दान"], 1)["passage"].tolist() == [1]
    save_index(LexicalIndex([["a"], ["b"]]), passages, "words", tmp_path / "index" / "index")  # as it was before
    with pytest.raises(UserError, match=r"other terms.*must be words-3\. Got words\.") as told:
        open_passage_index(tmp_path / "index")
    assert "infoflow data index" in str(told.value)


@pytest.mark.parametrize(("backend", "name"), [("torch", "exact"), ("faiss", "faiss"), (HNSW(), "hnsw")])
def test_an_index_of_words_has_no_vectors_to_search(tmp_path, backend, name):
    passages = Passages.from_rows(["ada lives in rome"])
    with pytest.raises(UserError, match=rf"is lexical \(BM25\)\. Got {name}\.\nAdd --retriever FOLDER"):
        build_passage_index(passages, tmp_path / "index", backend=backend)
    assert not (tmp_path / "index").exists()


@pytest.mark.parametrize(
    ("said", "right", "f1"),
    [
        ("北京大学", "北京大学的", 8 / 9),
        ("北京大学。", "「北京大学」", 1.0),
        ("２０１０年", "2010年", 1.0),
        ("กรุงเทพ", "กรุงเทพ", 1.0),
        ("दिल्ली।", "दिल्ली", 1.0),
        ("दिन", "दान", 0.0),
    ],
)
def test_answers_share_words_in_all_scripts(said, right, f1):
    assert token_f1(said, right) == pytest.approx(f1)
    assert exact_match(said, right) == (f1 == 1)
