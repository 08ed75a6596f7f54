"""`PassageIndex`: passages and the index that finds them in one folder; what `infoflow data index` builds and asks."""

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from infoflow.corpus import Corpus, Vocabulary, load_corpus, load_tokenizer, load_world
from infoflow.foundation import UserError
from infoflow.models import quiet_loading, unreadable

from ._benchmarks import is_benchmark, load_benchmark
from ._bm25 import LexicalIndex
from ._dense_index import DenseIndex
from ._found import Found
from ._index_folder import Index, index_kind, load_index, save_index
from ._library import Library
from ._origins import origins
from ._passages import Passages
from ._plain_tokens import plain_tokens
from ._retriever import Retriever
from ._terms import terms_name, terms_of
from ._tower_digest import tower_digest

_PASSAGES, _INDEX = "passages", "index"


class PassageIndex(NamedTuple):
    """Passages, their index, and for a dense one the retriever with its tokenizer."""

    passages: Passages
    index: Index
    retriever: Retriever | None = None
    tokenizer: Any = None

    @torch.no_grad()
    def search(self, questions: Sequence[str], k: int, exclude_origin: bool = False) -> Found:
        """The k best passages of each question.

        A dense retriever reads as much of a question as it has positions for; a special token written in one is text.

        Args:
            questions: In words.
            k: How many.
            exclude_origin: Whether passages that hold a question word for word are left out: for sentences, which come
                from passages, and not for questions.
        """
        out = origins(questions, self.passages) if exclude_origin else None
        if isinstance(self.index, LexicalIndex):
            return self.index.search(terms_of(questions), k, out)
        assert self.retriever is not None
        vectors = self.retriever.eval().queries(*_encoded(questions, self.tokenizer, self.retriever))
        return self.index.search(vectors, k, out)

    def look_up(self, questions: Sequence[str], k: int = 5, exclude_origin: bool = False) -> pd.DataFrame:
        """Columns `question, rank, passage, score, title, text`: one row for each passage found (see `search`)."""
        found = self.search(questions, min(k, len(self.passages)), exclude_origin)
        rows = [
            {"question": question, "rank": rank, "passage": int(id), "score": float(score)}
            | {"title": self.passages[int(id)].title, "text": self.passages[int(id)].text}
            for question, ids, scores in zip(questions, *found, strict=True)
            for rank, (id, score) in enumerate(zip(ids, scores, strict=True), start=1)
            if id >= 0
        ]
        return pd.DataFrame(rows, columns=["question", "rank", "passage", "score", "title", "text"])


def build_passage_index(
    source: str | Path | Corpus | Passages, folder: Path | str, retriever: Path | None = None
) -> PassageIndex:
    """Passages and their index, written to `folder`.

    Args:
        source: A store; a folder with a benchmark (see `load_benchmark`); `facts`, `facts:256`; or a corpus by name or
            path, whose sentences become passages; or a `Corpus`, whose documents do where it has them.
        folder: An old store and index there are replaced.
        retriever: A folder with a `Retriever` and its tokenizer makes a dense index; None: BM25 over words.

    Raises:
        UserError: The source cannot be read or holds no passage, the retriever cannot be loaded, or `folder` cannot be
            written.
    """
    folder = Path(folder)
    loaded = None if retriever is None else _load_retriever(retriever)
    with _or_nothing(folder):
        return _built(source, folder, loaded)


def _built(source: str | Path | Corpus | Passages, folder: Path, loaded: tuple[Retriever, Any] | None) -> PassageIndex:
    if isinstance(source, Passages):
        source.save(folder / _PASSAGES)
        passages = source
    else:
        passages = Passages.build(_rows(source), folder / _PASSAGES)
    if loaded is None:
        index: Index = LexicalIndex(terms_of(_whole(passages)))
        save_index(index, passages, terms_name(), folder / _INDEX)
        return PassageIndex(passages, index)
    model, tokenizer = loaded
    index = Library(passages, tokenizer, model.config.max_position_embeddings).embed(model.passages)
    save_index(index, passages, tower_digest(model.passages, tokenizer), folder / _INDEX)
    return PassageIndex(passages, index, model, tokenizer)


def open_passage_index(folder: Path | str, retriever: Path | None = None) -> PassageIndex:
    """What `build_passage_index` wrote, once every file is found to be as it was written.

    Args:
        folder: As it was named there.
        retriever: That of a dense index.

    Raises:
        UserError: There is none, a file is missing or damaged, or the retriever is missing or another one.
    """
    folder = Path(folder)
    passages = Passages.load(folder / _PASSAGES)
    dense = index_kind(folder / _INDEX) == "dense"
    if dense != (retriever is not None):
        raise UserError(
            f"The index in {folder} is {'dense: name the retriever that made it' if dense else 'lexical'}. Got "
            f"{'no retriever' if retriever is None else 'a retriever'}.\n"
            f"{'Give' if dense else 'Leave out'} --retriever FOLDER."
        )
    if retriever is None:
        return PassageIndex(passages, load_index(folder / _INDEX, passages, terms_name()).index)
    model, tokenizer = _load_retriever(retriever)
    stored = load_index(folder / _INDEX, passages, tower_digest(model.passages, tokenizer))
    assert isinstance(stored.index, DenseIndex)
    return PassageIndex(passages, stored.index, model, tokenizer)


def _encoded(questions: Sequence[str], tokenizer: Any, retriever: Retriever) -> tuple[Tensor, Tensor]:
    """Tokens `[CLS] x [SEP]` of each question, cut at its end to the retriever's positions, and what is no padding."""
    vocabulary = Vocabulary.from_tokenizer(tokenizer)
    room = retriever.config.max_position_embeddings - 2
    words, _ = plain_tokens(tokenizer, vocabulary, questions)
    rows = [torch.tensor([vocabulary.start, *row[:room].tolist(), vocabulary.end]) for row in words]
    ids = pad_sequence(rows, batch_first=True, padding_value=vocabulary.pad)
    return ids, pad_sequence([torch.ones_like(row) for row in rows], batch_first=True)


def _whole(passages: Passages) -> Iterator[str]:
    """Title and text of each."""
    return (f"{one.title} {one.text}".strip() for one in passages)


@contextmanager
def _or_nothing(folder: Path) -> Iterator[None]:
    """A folder that was not there is not there either where building it fails."""
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    try:
        yield
    except BaseException:
        if missing:
            shutil.rmtree(folder, ignore_errors=True)
        for path in missing[1:]:
            with suppress(OSError):  # somebody has put something there meanwhile
                path.rmdir()
        raise


def _load_retriever(folder: Path) -> tuple[Retriever, Any]:
    if not (folder / "config.json").is_file():
        raise UserError(
            f"No retriever lies in {folder}: there is no file config.json.\n"
            "Name a folder that training with inverse-cloze left, or Retriever.save_pretrained."
        )
    with quiet_loading():
        try:
            model = Retriever.from_pretrained(folder, local_files_only=True, use_safetensors=True)
        except UserError:
            raise
        except Exception as error:  # what a damaged folder raises is of many kinds
            raise unreadable(folder, error) from error
    tokenizer = load_tokenizer(folder)
    if tokenizer.pad_token_id is None:
        raise UserError(
            f"The tokenizer in {folder} has no padding token: its tokenizer_config.json is missing or damaged.\n"
            "Give the retriever's folder as it was saved."
        )
    return model.eval(), tokenizer


def _rows(source: str | Path | Corpus) -> Iterator[dict[str, Any] | str]:
    """Passages of a benchmark, of the world of facts, or of a corpus."""
    if isinstance(source, Corpus):
        yield from _of_corpus(source)
    elif world := load_world(str(source)):
        yield from world.passages()
    elif is_benchmark(Path(source)):
        yield from ({"title": one.title, "text": one.text} for one in load_benchmark(source).passages)
    else:
        yield from _of_corpus(load_corpus(source))


def _of_corpus(corpus: Corpus) -> Iterator[str]:
    if "document" not in corpus.columns:
        yield from corpus.column("text")
        return
    numbered = zip(corpus.require_documents().tolist(), corpus.column("text"), strict=True)
    for _, rows in groupby(numbered, key=lambda row: row[0]):
        yield " ".join(text for _, text in rows)
