"""Where words begin and end, in all scripts."""

import unicodedata

import numpy as np
import pytest

from infoflow.corpus import Corpus, leakage
from infoflow.foundation import running_word_spans, running_words, spacing_of, without_punctuation, words_of
from infoflow.models import bleu_statistics, exact_match, rouge, token_f1
from infoflow.retrieval import terms_of

SENTENCES = {
    "Chinese": ("我今天去北京看朋友。", 9),
    "Japanese": ("私は猫が好きです。", 8),
    "Thai": ("กินข้าว", 5),
    "Khmer": ("ភាសាខ្មែរ", 5),
    "Lao": ("ພາສາລາວ", 7),
    "Burmese": ("မြန်မာစာ", 4),
    "Tibetan": ("བོད་ཡིག", 4),
    "Javanese": ("ꦧꦱꦗꦮ", 4),
    "mixed": ("我在Google工作15年，不是Facebook", 10),
    "full width": ("Ｇｏｏｇｌｅ、東京", 3),
    "half-width kana": ("ｶﾞｷﾞ、ﾊﾟﾝ", 4),
    "conjuncts": ("क्षत्रिय श्रीकृष्ण।", 2),
    "Sinhala": ("ශ්\u200dරී ලංකාව", 2),
    "Mongolian": ("ᠮᠣᠩᠭᠣᠯ\u180eᠠ ᠪᠢᠴᠢᠭ", 2),
    "soft hyphens": ("Donau\u00addampf\u00adschiff fährt", 2),
    "direction marks": ("שלום\u200f לך", 2),
    "Korean, decomposed": (unicodedata.normalize("NFD", "나는 오늘 간다."), 3),
    "Korean": ("나는 오늘 서울에 간다.", 4),
    "Hindi": ("मैं आज दिल्ली जाता हूँ।", 5),
    "Persian": ("می‌خواهم کِتاب بخوانم", 3),
    "Hebrew": ("בְּרֵאשִׁית בָּרָא", 2),
    "Russian": ("Я сегодня еду.", 3),
    "Greek": ("Πάω σήμερα;", 2),
    "English": ("I don't - really - go.", 6),
}


@pytest.mark.parametrize("name", SENTENCES)
def test_words_of_running_text(name):
    text, count = SENTENCES[name]
    words = running_words(text)
    assert len(words) == count
    assert [text[start:end] for start, end in running_word_spans(text)] == words
    assert "".join(words) == text.replace(" ", "")
    if name != "English":
        assert [without_punctuation(word) for word in words] == words_of(text)


def test_text_with_spaces_has_the_words_between_them():
    for text in ("L'été, «déjà» — fini…", "  Ну-ка\tвот\n", "", "3.5 ½ €", "한국어 문장"):
        assert running_words(text) == text.split()


def test_brackets_belong_to_the_word_inside():
    assert running_words("他说：“好”《红》") == ["他", "说：", "“好”", "《红》"]


def test_how_texts_divide_their_words():
    assert spacing_of(["The river 黄河 is long and wide in the north."]) == "spaces"
    assert spacing_of(["나는 大學에 간다"]) == "spaces"
    assert spacing_of(["iPhone 15 Pro 是一款手机"]) == "han"
    assert spacing_of(["私は東京へ行きます。"]) == "none"
    assert spacing_of(["ฉันชอบแมว"]) == "none"
    assert spacing_of([]) == "spaces"


@pytest.mark.parametrize("text", ["ទៅ\u200bសាលា\u200b", "the\u200bold\u200b cat\u200bsleeps", "እኔ፡ትምህርት፡ቤት።"])
def test_signs_that_divide_words_without_being_white_space(text):
    spaced = text.replace("\u200b", " ").replace("፡", " ")
    assert running_words(text) == running_words(spaced)
    assert [text[start:end] for start, end in running_word_spans(text)] == running_words(text)
    assert words_of(text) == words_of(spaced)


ALIKE = {
    "composed": (unicodedata.normalize("NFD", "나는 오늘 서울에 간다"), "나는 오늘 서울에 간다"),
    "full width": ("Ｈｅ　ｌｉｋｅｓ　２　ｃａｔｓ", "He likes 2 cats"),
    "half width": ("ｶﾞﾗｽﾉﾊﾟﾝ", "ガラスノパン"),
    "Thai am": (unicodedata.normalize("NFKD", "น้ำใจดีมาก"), "น้ำใจดีมาก"),
    "Arabic marks": (unicodedata.normalize("NFD", "أَخَذَ الوَلَدُ كِتَابًا"), "أَخَذَ الوَلَدُ كِتَابًا"),
    "Hebrew points": ("\ufb2aלום לכם", "ש\u05c1לום לכם"),
    "soft hyphens": ("Das Donau\u00addampf\u00adschiff fährt heute", "Das Donaudampfschiff fährt heute"),
    "direction marks": ("\u200fאני אוהב\u200f חתולים\u202c מאוד", "אני אוהב חתולים מאוד"),
    "word joiners": ("\ufeffthe cat\u2060s sleep here", "the cats sleep here"),
    "zero-width spaces": ("ខ្ញុំ\u200bទៅ\u200bសាលា\u200b", "ខ្ញុំទៅសាលា"),
    "Ethiopic wordspaces": ("እኔ፡ትምህርት፡ቤት፡እሄዳለሁ", "እኔ ትምህርት ቤት እሄዳለሁ"),
    "emoji": ("❤\ufe0f👨\u200d👩\u200d👧", "❤👨\u200d👩\u200d👧"),
    "one word": ("ﬁn", "fin"),
}
OTHER = "全然違う ፍጹም different אחר 다른"


@pytest.mark.parametrize("name", ALIKE)
def test_texts_that_look_the_same_are_equal_to_every_score(name):
    one, other = ALIKE[name]
    assert one != other
    for said, right in ((one, other), (other, one)):
        assert bleu_statistics([said], [[right]]).score == pytest.approx(100)
        assert [values[0] for values in rouge([said], [[right]]).values()][:2] == [1, 1]
        assert exact_match(said, right)
        assert token_f1(said, right) == 1
        assert bleu_statistics([OTHER], [[right]]).score < 5
        assert rouge([OTHER], [[right]])["rougeL"][0] == token_f1(OTHER, right) == 0
        found = leakage(Corpus.from_sentences([said]), Corpus.from_sentences([right]))
        assert found.near_sources == 1
    if name == "zero-width spaces":  # spaces in such a script are part of a text's terms and of its id
        return
    assert terms_of([one]) == terms_of([other])
    assert len(np.unique(Corpus.from_sentences([one, other, OTHER]).text_ids)) == 2
