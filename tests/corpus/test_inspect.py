"""Files whose lines are no sentences are refused with two of their rows; what was right is read as before."""

import io
from functools import partial

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from infoflow.corpus import Corpus, load_corpus
from infoflow.foundation import UserError

NO_SENTENCES = {
    "a.srt": "1\n00:00:01,000 --> 00:00:04,000\nHello there.\n\n2\n00:00:05,000 --> 00:00:06,000\nGo!\n",
    "a.vtt": "WEBVTT\n\n00:01.000 --> 00:04.000\nHello there.\n",
    "a.tmx": '<?xml version="1.0"?>\n<tmx version="1.4">\n<body><tu><tuv><seg>Hi</seg></tuv></tu></body>\n</tmx>\n',
    "a.html": "<!DOCTYPE html>\n<html><body>\n<p>Hello.</p>\n</body></html>\n",
    "a.sgm": '<srcset setid="x">\n<seg id="1">Hello there.</seg>\n<seg id="2">Go!</seg>\n</srcset>\n',
    "a.po": 'msgid ""\nmsgstr ""\n\nmsgid "Open"\nmsgstr "Ouvrir"\n',
    "jsonl.txt": '{"text": "Hello."}\n{"text": "Go!"}\n',
    "json.txt": '[\n  {\n    "text": "Hello."\n  }\n]\n',
    "table.md": "| a | b |\n|---|---|\n| Hello. | Bonjour. |\n",
    "csv.txt": 'text,label\nthe cat sleeps,1\n"a, b",0\n',
    "tabs.txt": "the cat\tle chat\nthe dog\tle chien\n",
    "leipzig.txt": "1\tThe cat sleeps.\n2\tThe dog barks.\n",
    "conll.txt": "EU B-ORG\nrejects O\n\nPeter B-PER\nsleeps O\n",
    "fasttext.txt": "__label__1 good film\n__label__2 bad film\n",
    "numbered.txt": "1. The cat sleeps.\n2. The dog barks.\n3. We left.\n",
    "counted.txt": "(7) The cat sleeps.\n(8) The dog barks.\n\n(9) We left.\n",
    "a.sbv": "0:00:01.000,0:00:04.000\nHello there.\n\n0:00:05.000,0:00:06.000\nGo!\n",
    "a.lrc": "[ti:Song]\n[00:12.00]Line one of it\n[00:17.20]Line two of it\n",
    "doc.txt": '<doc id="12" title="Cats">\nCats\nThe cat sleeps.\nThe dog barks.\n</doc>\n',
    "tei.xml": "<!-- made by hand -->\n<TEI>\nThe cat sleeps.\nThe dog barks.\nWe left.\n</TEI>\n",
    "a.tex": "% notes\n\\section{Cats}\nThe cat sleeps \\cite{x}.\nThe dog barks.\nWe left.\n",
    "app.log": "2024-01-01 12:00:00 INFO request 1 done\n2024-01-02 12:00:03 WARN request 2 failed\n",
    "chat.txt": "[01/02/2024, 12:00] Ann: hello there\n[01/02/2024, 12:01] Bob: how are you\n",
    "a.py": "import gzip\n\nprint('The cat sleeps.')\n",
    "code.txt": "int main(void) {\n  int i = 0;\n  while (i < 3) {\n    call(i);\n  }\n}\n",
    "a.properties": "# messages\nopen.file: Open the file\nsave: Save it\n",
    "strings.txt": '"Hello."\n"Go now, he said."\n"Stop."\n',
    "array.txt": '[\n "Hello.",\n "Go!",\n "Stop."\n]\n',
    "read me.md": "# Cats\n\nThe cat sleeps.\n\na | b\n--- | ---\n1 | 2\n",
    "fenced.md": "# Cats\n\nThe cat sleeps.\n\n```python\nx = 1\n```\n",
    "trees.txt": "(S (NP (DT The) (NN cat)) (VP (VBZ sleeps)))\n(S (NP (PRP He)) (VP (VBZ eats)))\n",
    "counted without a stop.txt": "1 Mary went home.\n2 John slept.\n1 We left.\n2 He stayed.\n",
    "pipes.txt": "LJ001-0001|Printing, in this sense|Printing, in this sense\nLJ001-0002|in being|in being\n",
    "toml.txt": '[tool]\nname = "cat"\nage = 3\n[[x]]\na = 1\n',
    "locale.txt": '---\nen:\n  hello: "Hello world"\n  bye: "Good bye"\n',
    "dump.txt": "INSERT INTO t VALUES (1,'The cat sleeps.');\nINSERT INTO t VALUES (2,'A dog barks.');\n",
    "wiki.txt": "== Cats ==\n'''Cats''' are [[animal|animals]].\n{{Infobox}}\n",
    "cited.txt": "@article{x,\n  title={Cats},\n}\n",
    "mail.txt": "From: ann@example.com\nTo: bob@example.com\n\nHello there.\n",
    "directives.txt": "Title\n=====\n\n.. note:: The cat sleeps.\n",
    "trec.txt": "DESC:manner How did it begin ?\nENTY:animal What barks ?\n",
    "slashes.txt": "The/DT cat/NN sleeps/VBZ ./.\nHe/PRP eats/VBZ ./.\n",
    "aligned.txt": "The cat sleeps. ||| Le chat dort.\nThe dog barks. ||| Le chien aboie.\n",
    "bpe.txt": "The c@@ at sle@@ eps .\nA do@@ g bar@@ ks .\n",
    "vectors.txt": "the 0.1 -0.2 0.3\ncat 0.4 0.5 0.6\n",
    "named.txt": "1089-1-0000 THE CAT SLEEPS\n1089-1-0001 THE DOG BARKS\n1089-1-0002 WE LEFT\n",
    "addresses.txt": "https://example.com/a\nhttps://example.com/b\n",
    "vocabulary.txt": "\n".join(["the", "of", "cat", "dog", "sleeps"] * 4),
    "2012.txt": "#begin document (a); part 000\na 0 0 John NNP (TOP* -\na 0 1 sleeps VBZ *) sleep\n",
    "ud.txt": "# sent_id = 1\n1\tJohn\tJohn\tN\tNNP\t_\t0\troot\t_\t_\n",
    "numbers.txt": "2008\n2009\n2010\n",
    "header.tsv": "English\tFrench\nthe cat\tle chat\n",
    "codes.tsv": "eng\tfra\nthe cat\tle chat\n",
    "locales.tsv": "en_US\tfr_FR\nthe cat\tle chat\n",
    "turkish.tsv": "kaynak\thedef\n" + "Kedi uyuyor.\tThe cat sleeps.\n" * 5,
    "signs.tsv": "原文\t译文\n" + "猫睡在垫子上。\tThe cat sleeps.\n" * 5,
    "sst2.tsv": "index\tsentence\tlabel\n0\tthe cat sleeps\t1\n",
    "scored.tsv": "my text\tvalue\nthe cat sleeps\t0.3\na dog barks\t0.4\n",
    "label.tsv": "pos\tthe cat sleeps well\nneg\tthe dog barks at me\n",
    "nli.tsv": "the cat sleeps\ta cat sleeps\t1\nthe dog barks\tthe cat sleeps\t0\n",
    "cola.tsv": "gj04\t1\t\tOur friends won't buy this.\ngj04\t0\t*\tOne more them.\n",
    "tatoeba.tsv": "1276\teng\tLet us try.\n1277\teng\tI must sleep.\n",
    "pairs.tsv": "1276\tLet us try.\t3091\tEssayons.\n1277\tI must sleep.\t3092\tJe dois dormir.\n",
}
SENTENCES = {
    "few.tsv": "Hi.\tSalut.\n",
    "short.tsv": "Go.\tVa !\nGo.\tMarche.\nRun!\tCours !\nit\tça\n",
    "chinese.tsv": "The cat sleeps on the mat.\t猫睡在垫子上。\nThe dog barks at me.\t狗对我叫。\n",
    "attributed.tsv": "Go.\tVa !\tCC-BY 2.0 (France) Attribution: a\nHi.\tSalut.\tCC-BY 2.0 (France) by #2\n",
    "years.txt": "1990. It rained.\n1992. It did not.\n1993. It rained again.\n",
    "a.txt": "Yes, I do.\nNo, he left.\nWell, then.\n",
    "some tabs.txt": "One\ttab here.\nNone here.\nTwo\ttabs\there.\n",
    "marks.txt": '<unk> is said.\nHe said <unk> again.\n"Quoted," he said.\n',
    "legal.txt": "the owner of a vessel under section 9.1(1);\nevery person under paragraphs 58(1) or (3);\n",
    "speakers.txt": "ANN: Hello there.\nBob laughs.\nANN: Go!\n",
    "words.txt": "the\ncat\nsleeps\n",
    "from.txt": "From 1990 to 2000 he lived in Rome.\nSelect one of them;\nUpdate it;\n",
    "greeting.tsv": "Hello\tBonjour\n" + "Hello\tSalut\n" * 5,
    "lists.txt": "- one thing\n- another thing\n1. a third\n",
    "chinese.txt": "我喜欢猫。\n她说，别走。\n",
    "a.md": "# Title\n\nSome text about a | b.\n",
}


@pytest.mark.parametrize("name", NO_SENTENCES)
def test_what_is_no_sentence_is_refused_and_read_as_it_is(name, write):
    path = write(name, NO_SENTENCES[name])
    with pytest.raises(UserError) as refused:
        load_corpus(path)
    message = str(refused.value)
    lines = [line for line in NO_SENTENCES[name].splitlines() if line]
    assert all(line.replace("\t", " ⇥ ")[:60] in message for line in lines[:2])
    assert f"as-is:{path}" in message
    assert not name.endswith(".tsv") or "--text-column" in message
    assert len(load_corpus(f"as-is:{path}")) > 0


@pytest.mark.parametrize("name", SENTENCES)
def test_sentences_are_read_as_before(name, write):
    path = write(name, SENTENCES[name])
    kept = [line for line in SENTENCES[name].splitlines() if line.strip()]
    expected = [line.split("\t")[0] for line in kept] if name.endswith(".tsv") else kept
    assert list(load_corpus(path).column("text")) == expected


@pytest.mark.parametrize(
    ("begin", "kind"), [(b"%PDF-1.7", "a PDF document"), (b"PK\x03\x04\x00\x00", "a zip archive"), (b"{\\rtf1", "RTF")]
)
def test_documents_of_other_programs_are_named(begin, kind, write):
    with pytest.raises(UserError, match=kind):
        load_corpus(write("a.txt", begin + b" more\n"))


@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.json", "a.jsonl", "a.conllu", "a.tagged", "a.txt"])
def test_parquet_by_another_name_is_parquet(name, write):
    table = io.BytesIO()
    pq.write_table(pa.table({"text": ["The cat sleeps."]}), table)
    with pytest.raises(UserError, match="is a Parquet table"):
        load_corpus(write(name, table.getvalue()))


def test_spreadsheets_by_the_name_of_parquet_are_spreadsheets(write):
    with pytest.raises(UserError, match=r"not a Parquet file.*it is a zip archive or a document of Word, Excel"):
        load_corpus(write("a.parquet", b"PK\x03\x04\x00\x00 more"), text_column="text")


@pytest.mark.parametrize("sign", [";", "|"])
def test_tables_may_have_other_signs_between_cells(sign, write):
    path = write("a.csv", f"text{sign}label\nThe cat, asleep{sign}1\n")
    assert list(load_corpus(path, text_column="text").column("text")) == ["The cat, asleep"]


def test_readers_called_by_themselves_inspect_too(write):
    subtitles = write("a.srt", NO_SENTENCES["a.srt"])
    pairs = write("pairs.tsv", NO_SENTENCES["pairs.tsv"])
    for reader, path in ((Corpus.from_text, subtitles), (Corpus.from_parallel, pairs)):
        with pytest.raises(UserError, match=f"To read it anyway: as-is:{path}"):
            reader(path)
        assert len(reader(f"as-is:{path}")) > 0
    assert Corpus.from_parallel(pairs, columns=(2, 4))[0].translation == "Essayons."


@pytest.mark.parametrize(("column", "what"), [("score", "numbers"), ("kind", "labels")])
def test_a_named_column_of_numbers_or_labels_is_refused(column, what, write):
    path = write("a.csv", "text,score,kind\n" + "".join(f"This is line {n}.,{n},{'ab'[n % 2]}\n" for n in range(20)))
    for read in (partial(load_corpus, text_column=column), partial(Corpus.from_table, text=column)):
        with pytest.raises(UserError, match=rf"has {what} in the column {column}\. .*\n  [0a]\n  [1b]\n"):
            read(path)
    assert len(load_corpus(f"as-is:{path}", text_column=column)) == 20
    assert load_corpus(path, text_column="text", label_column=column)[1].label == {"score": "1", "kind": "b"}[column]


def test_both_sides_of_a_pair_are_inspected(write):
    write("a.en", "the cat\nthe dog\n")
    path = write("a.fr", '{"x": 1}\n{"x": 2}\n')
    with pytest.raises(UserError, match="JSON on every line"):
        load_corpus(f"{path.with_suffix('.en')},{path}")


def test_columns_are_named_by_number_from_one_or_by_their_header(write):
    bare = write("bare.tsv", NO_SENTENCES["pairs.tsv"])
    read = load_corpus(bare, text_column="2", translation_column="4")
    assert [(s.text, s.translation) for s in read] == [
        ("Let us try.", "Essayons."),
        ("I must sleep.", "Je dois dormir."),
    ]
    headed = write("headed.tsv", "index\tsentence\tlabel\n0\tthe cat sleeps\t1\n")
    for column in ("2", "sentence"):
        assert list(load_corpus(headed, text_column=column).column("text")) == ["the cat sleeps"]
    with pytest.raises(UserError, match="has no column 5"):
        load_corpus(bare, text_column="5")


@pytest.mark.parametrize("columns", [(0, 1), (1, 0)])
@pytest.mark.parametrize("reader", ["from_parallel", "from_labelled", "from_minimal_pairs"])
def test_no_column_has_the_number_zero(columns, reader, write):
    with pytest.raises(UserError, match="Columns count from 1, as in cut -f"):
        getattr(Corpus, reader)(write("a.tsv", "one\ttwo\n"), columns=columns)


def test_quotation_marks_of_pandas_are_undone_and_others_stay(write):
    quoted = '"He said ""hi"" to me"\t1\n"a, b"\t0\n'
    table = load_corpus(write("a.tsv", f"text\tlabel\n{quoted}"), text_column="text", label_column="label")
    assert list(table.column("text")) == ['He said "hi" to me', "a, b"]
    pairs = load_corpus(write("b.tsv", '"He said ""hi"" to me"\t"Il dit ""oui"" à moi"\nGo.\tVa !\n'))
    assert pairs[0].translation == 'Il dit "oui" à moi'
    plain = write("c.tsv", '"Go!" he said.\tIl dit va.\n"Stop!"\t"Halte !"\n')
    assert [s.text for s in load_corpus(plain)] == ['"Go!" he said.', '"Stop!"']


def test_text_in_escape_sequences_is_in_another_encoding(write):
    with pytest.raises(UserError, match=r"ISO-2022.*\n.*\n.*iconv -f ISO-2022-JP"):
        load_corpus(write("a.txt", "猫が寝ています。\n".encode("iso2022_jp")))


def test_utf_16_without_a_mark_is_recognised_by_the_whole_beginning(write):
    with pytest.raises(UserError, match="UTF-16LE: 这只猫在垫子上睡觉。"):
        load_corpus(write("a.txt", "这只猫在垫子上睡觉。\n".encode("utf-16-le")))


def test_labelled_files_and_minimal_pairs_have_texts_where_they_are_expected_and_no_header(write):
    rows = [f"this is the sentence {n} of ours\t{'ab'[n % 2]}\n" for n in range(20)]
    swapped = write("swapped.tsv", "".join(rows))
    with pytest.raises(UserError, match="has labels in column 2"):
        Corpus.from_labelled(swapped)
    assert Corpus.from_labelled(swapped, (2, 1))[1].label == "b"
    headed = write("headed.tsv", "satzteil\tklasse\n" + "".join(rows))
    with pytest.raises(UserError, match="has column names in its first line"):
        Corpus.from_labelled(headed, (2, 1))
    pairs = write("pairs.tsv", "gut\tschlecht\n" + "The cats sleep.\tThe cats sleeps.\n" * 5)
    with pytest.raises(UserError, match="has column names in its first line"):
        Corpus.from_minimal_pairs(pairs, (1, 2))


@pytest.mark.parametrize("end", ["\r", "\n", "\r\n"])
def test_every_kind_of_line_end(end, write):
    path = write("a.txt", end.join(["one", "two", "", "three"]) + end)
    assert list(load_corpus(path).column("text")) == ["one", "two", "three"]
    assert list(load_corpus(write("b.txt", f"one{end}two")).column("text")) == ["one", "two"]


def test_a_carriage_return_inside_a_line_of_others_does_not_break_the_alignment(write):
    path = write("a.txt", "one\rstill one\ntwo\n")
    assert list(Corpus.from_text(path).column("text")) == ["one\rstill one", "two"]


def test_two_kinds_of_line_ends_are_refused(write):
    with pytest.raises(UserError, match="mixed two kinds of line ends"):
        load_corpus(write("a.txt", "The cat sleeps.\rA dog runs.\n" * 10))


def test_an_array_of_objects_is_a_json_document(write):
    lines = ",\n".join(f'{{"text": "Cat {number} sleeps."}}' for number in range(6))
    with pytest.raises(UserError, match="is a JSON document"):
        load_corpus(write("a.txt", f"[\n{lines}\n]\n"))


@pytest.mark.parametrize(
    "header", ["English sentence\tGerman sentence", "Ausgangstext\tZieltext", "source_text\ttarget_text"]
)
def test_headers_of_several_words_and_languages(header, write):
    with pytest.raises(UserError, match="has column names in its first line"):
        load_corpus(
            write("a.tsv", f"{header}\nThe cat sleeps well.\tDie Katze schläft gut.\nDogs run.\tHunde rennen.\n")
        )
    plain = write("b.tsv", "Hello\tHallo\nThe cat sleeps well.\tDie Katze schläft gut.\n")
    assert load_corpus(plain)[0].text == "Hello"


IN_FRONT = {
    "token": "t0 John NN O\nt1 sleeps VB O\n\nt0 Mary NN O\nt1 runs VB O\n",
    "sentence and token": "0.0 John NN O\n0.1 sleeps VB O\n\n1.0 Mary NN O\n1.1 runs VB O\n",
    "offsets": "0-4\tJohn\tO\n5-11\tsleeps\tO\n12-15\tnow\tB-TIME\n",
    "sentence": "".join(f"{number} John NN O\n{number} sleeps VB O\n\n" for number in range(5)),
    "document": "wsj_0001 John NNP B-PER\nwsj_0001 sleeps VB O\n\nwsj_0001 Mary NNP B-PER\nwsj_0001 runs VB O\n",
    "comment": "# id abc domain=en\nJohn _ _ B-PER\nsleeps _ _ O\n\n# id abd domain=en\nthe _ _ O\n",
    "a number that is a word": "John NN B-PER\nsleeps VB O\n\n1999 CD O\n2001 CD O\n",
    "words with numbers": "John A\nsleeps B\n\nw3 B\nw1 A\n",
}


@pytest.mark.parametrize("name", IN_FRONT)
def test_words_stand_behind_identifiers(name, write):
    text = IN_FRONT[name]
    assert load_corpus(write("a.conll", text))[0].words[:2] == ["John", "sleeps"]


def test_tags_in_front_of_words_are_refused(write):
    with pytest.raises(UserError, match=r"(?s)column 1 has tags, not words.*B-PER ⇥ John.*word=2"):
        load_corpus(write("a.tagged", "B-PER\tJohn\nO\tsleeps\n\n" * 3))


def test_the_word_stands_behind_the_column_that_numbers_it(write):
    words = ["John", "sleeps"]
    files = {
        "2012": "#begin document (a); part 000\na 0 0 John NNP (TOP* - - (1)\na 0 1 sleeps VBZ *) sleep - -\n\n"
        "a 0 0 He PRP (TOP* - * - (1)\n\n#end document\n",
        "x": "1\tJohn\tJohn\tN\tNNP\t_\t2\tSBJ\n2\tsleeps\tsleep\tV\tVBZ\t_\t0\tROOT\n\n",
        "germeval": "#\tn-tv.de vom 26.02.2005\n1\tJohn\tB-PER\tO\n2\tsleeps\tO\tO\n\n",
        "2003": "-DOCSTART- -X- -X- O\n\nJohn NNP B-NP B-PER\nsleeps VBZ B-VP O\n\n",
        "comment": "# sent_id = 3\nJohn NNP B-NP B-PER\nsleeps VBZ B-VP O\n\n# NN B-NP O\n\n",
    }
    for name, text in files.items():
        assert load_corpus(write(f"{name}.conll", text))[0].words == words, name
    assert load_corpus(write("comment.conll", files["comment"]))[1].words == ["#"]
    assert load_corpus(write("2012.conll", files["2012"]))[0].tags["tag"] == ["(1)", "-"]
    tagged = write("a.tagged", "1\tX\n2\tX\n\n")
    with pytest.raises(UserError, match=r"(?s)column 1 has numbers, not words.*1 ⇥ X.*word=2"):
        Corpus.from_tagged(tagged)
    assert Corpus.from_tagged(write("b.tagged", "1\tJohn\tX\n\n"), word=2)[0].words == ["John"]


ENCODED = {
    "gbk": ("今天天气很好，我们去公园散步。", "GB18030"),
    "big5": ("今天天氣很好，我們去公園散步。", "BIG5"),
    "cp932": ("今日は天気がいいので、公園を散歩します。", "SHIFT_JIS"),
    "cp949": ("오늘은 날씨가 좋아서 공원에서 산책합니다.", "CP949"),
    "cp1251": ("Сегодня хорошая погода, мы идём гулять.", "WINDOWS-1251"),
    "koi8-r": ("Сегодня хорошая погода, мы идём гулять.", "KOI8-R"),
    "cp1252": ("Il a été très élégant à l'école.", "WINDOWS-1252"),
    "utf-16": ("Il a été là.", "UTF-16"),
    "utf-16-le": ("Il a été là.", "UTF-16LE"),
    "utf-16-be": ("今天天气很好，我们去公园散步。", "UTF-16BE"),
}


@pytest.mark.parametrize("encoding", ENCODED)
def test_encodings_that_may_be_meant_show_what_a_line_would_say(encoding, write):
    text, name = ENCODED[encoding]
    with pytest.raises(UserError) as refused:
        load_corpus(write("a.txt", f"{text}\n{text}\n".encode(encoding)))
    assert f"\n  {name}: {text[:40]}" in str(refused.value)
    assert "LATIN1" not in str(refused.value)


def test_no_encoding_is_named_where_none_reads_right(write):
    with pytest.raises(UserError, match="Convert it to UTF-8 from its original encoding"):
        load_corpus(write("a.txt", b"abc \x81\xfe\xff\x9d\x81 def\n"))


def test_numbers_may_be_words_after_the_first_sentence(write):
    assert load_corpus(write("a.tagged", "John\tN\nruns\tV\n\n1\tC\n2\tC\n"))[1].words == ["1", "2"]
    with pytest.raises(UserError, match="the same value on every line"):
        load_corpus(write("b.tagged", "a\tJohn\na\truns\na\tso\na\tfast\n\nb\tMary\nb\truns\n"))
