"""`PassageIndex`: passages and their index in one folder, as `infoflow data index` builds and uses them."""

import shutil
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache, partial
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
import torch
from torch import Tensor

from infoflow.corpus import Corpus, Vocabulary, load_corpus, load_tokenizer, load_world
from infoflow.foundation import UserError, check_own_folder, stream
from infoflow.models import pad_rows, unreadable, without_remarks

from ._benchmarks import is_benchmark, load_benchmark
from ._bm25 import WORD_TERMS, LexicalIndex, TermStatistics, require_lexical, terms_of
from ._dense_index import Backend, DenseIndex, faiss_library
from ._found import Found, Searches
from ._index_folder import (
    ABOUT,
    NUM_QUERIES,
    SearchRecall,
    ShardedIndex,
    index_kind,
    load_index,
    save_index,
    search_recall,
    tower_digest,
)
from ._library import Library, plain_tokens
from ._passages import ABOUT as STORE
from ._passages import Passages
from ._retriever import Retriever
from ._scores import origins

PASSAGES, INDEX = "passages", "index"  # folders of the two parts
_BATCH = 256  # questions per encoder batch


class PassageIndex(NamedTuple):
    """Passages and their index; for a dense index, also the retriever with its tokenizer."""

    passages: Passages
    index: Searches
    retriever: Retriever | None = None
    tokenizer: Any = None
    recall: tuple[SearchRecall, ...] = ()  # of an approximate index, or of each shard

    def search(self, questions: Sequence[str], k: int, exclude_origin: bool = False) -> Found:
        """The k best passages of each question.

        A dense retriever truncates questions to its positions; special tokens written in a question are plain text.

        Args:
            questions: As text.
            k: Number of results.
            exclude_origin: Whether to leave out passages that contain a question word for word. Use it for sentences
                taken from passages, not for questions.
        """
        out = origins(questions, self.passages) if exclude_origin else None
        return self.index.search(self.queries(questions), k, out)

    @torch.no_grad()
    def queries(self, questions: Sequence[str]) -> Tensor | list[list[Hashable]]:
        """Questions as input of the index: vectors (question, width), or terms of each."""
        if self.retriever is None:
            return terms_of(questions)
        tower, width = self.retriever.eval().queries, self.retriever.config.vector_width
        parts = [
            tower(*_encoded(questions[start : start + _BATCH], self.tokenizer, self.retriever))
            for start in range(0, len(questions), _BATCH)
        ]
        return torch.cat(parts) if parts else torch.empty(0, width)

    def look_up(self, questions: Sequence[str], k: int = 5, exclude_origin: bool = False) -> pd.DataFrame:
        """Columns `question, rank, passage, score, title, text`: one row per passage found (see `search`)."""
        return self.rows(questions, self.search(questions, min(k, len(self.passages)), exclude_origin))

    def rows(self, questions: Sequence[str], found: Found) -> pd.DataFrame:
        """Search results in the form of `look_up`."""
        rows = [
            {"question": question, "rank": rank, "passage": int(id), "score": float(score)}
            | {"title": self.passages[int(id)].title, "text": self.passages[int(id)].text}
            for question, ids, scores in zip(questions, *found, strict=True)
            for rank, (id, score) in enumerate(zip(ids, scores, strict=True), start=1)
            if id >= 0
        ]
        return pd.DataFrame(rows, columns=["question", "rank", "passage", "score", "title", "text"])


def open_passage_index(folder: Path | str | Sequence[Path | str], retriever: Path | None = None) -> PassageIndex:
    """The output of `build_passage_index`, after a check of every file.

    Args:
        folder: The folder that it wrote, or the folders of all shards, in any order.
        retriever: The retriever of a dense index.

    Raises:
        UserError: There is no index, a file is missing or damaged, the retriever is missing or differs, or a shard is
            missing.
    """
    folders = [folder] if isinstance(folder, str | Path) else folder
    load = None if retriever is None else cache(partial(load_retriever, retriever))  # once for all shards
    opened = [_opened(Path(one), load) for one in folders]
    if len(opened) == 1 and opened[0].passages.shard is None:
        return opened[0]
    passages = Passages.join([one.passages for one in opened])
    by_number = sorted(opened, key=_number)
    recall = tuple(each for one in by_number for each in one.recall)
    index = ShardedIndex([one.index for one in by_number])
    return PassageIndex(passages, index, opened[0].retriever, opened[0].tokenizer, recall)


def open_shard(folder: Path | str, retriever: Path | None = None) -> PassageIndex:
    """One shard alone, for a process of a `GroupIndex`: its ids are positions in the shard (see `Passages.shard`).

    Args:
        folder: A folder written by `build_passage_index`.
        retriever: The retriever of a dense index.

    Raises:
        UserError: As in `open_passage_index`.
    """
    return _opened(Path(folder), None if retriever is None else partial(load_retriever, retriever))


def _opened(folder: Path, load: Callable[[], tuple[Retriever, Any]] | None) -> PassageIndex:
    passages = Passages.load(folder / PASSAGES)
    dense = index_kind(folder / INDEX) == "dense"
    if dense != (load is not None):
        raise UserError(
            f"The index in {folder} is {'dense: name the retriever that made it' if dense else 'lexical'}. Got "
            f"{'no retriever' if load is None else 'a retriever'}.\n"
            f"{'Add' if dense else 'Leave out'} --retriever FOLDER."
        )
    if load is None:
        return PassageIndex(passages, load_index(folder / INDEX, passages, terms_of_store(passages)).index)
    model, tokenizer = load()
    stored = load_index(folder / INDEX, passages, tower_digest(model.passages, tokenizer))
    recall = () if stored.recall is None else (stored.recall,)
    return PassageIndex(passages, stored.index, model, tokenizer, recall)


def _number(shard: PassageIndex) -> int:
    return 0 if shard.passages.shard is None else shard.passages.shard.number


def _encoded(questions: Sequence[str], tokenizer: Any, retriever: Retriever) -> tuple[Tensor, Tensor]:
    """Tokens `[CLS] x [SEP]` of each question, truncated to the retriever's positions, with their padding mask."""
    vocabulary = Vocabulary.from_tokenizer(tokenizer)
    room = retriever.config.max_position_embeddings - 2
    words, _ = plain_tokens(tokenizer, vocabulary, questions)
    return pad_rows([[vocabulary.start, *row[:room].tolist(), vocabulary.end] for row in words], vocabulary.pad)


def terms_of_store(passages: Passages) -> str:
    """Name of the terms of a store's index; for a shard, including the digest of the whole store."""
    return WORD_TERMS if passages.shard is None else f"{WORD_TERMS} of {passages.shard.whole}"


def load_retriever(folder: Path) -> tuple[Retriever, Any]:
    if not (folder / "config.json").is_file():
        raise UserError(
            f"There is no retriever in {folder}: config.json is missing.\n"
            "Name a folder written by training with inverse-cloze, or by Retriever.save_pretrained."
        )
    with without_remarks():
        try:
            model = Retriever.from_pretrained(folder, local_files_only=True, use_safetensors=True)
        except UserError:
            raise
        except Exception as error:  # a damaged folder raises many kinds of errors
            raise unreadable(folder, error) from error
    tokenizer = load_tokenizer(folder)
    if tokenizer.pad_token_id is None:
        raise UserError(
            f"The tokenizer in {folder} has no padding token: its tokenizer_config.json is missing or damaged.\n"
            "Use the retriever's folder as it was saved."
        )
    return model.eval(), tokenizer


# Builds passages and their index in a folder, as `infoflow data index --out` does.

Source = str | Path | Corpus | Passages


def build_passage_index(
    source: Source,
    folder: Path | str,
    retriever: Path | None = None,
    backend: Backend | None = None,
    shard: tuple[int, int] | None = None,
) -> PassageIndex:
    """Build passages and their index in `folder`, replacing existing ones, and return them.

    `source` is a store, a folder with a benchmark, `facts`, `facts:256`, a corpus by name or path, whose sentences
    become passages, or a `Corpus`, whose documents become passages if it has them. With a `retriever` (a folder with
    its tokenizer) the index is dense, otherwise BM25 over words. For an approximate `backend`, recall@10 is reported on
    200 questions of the source, or on passages if it has none. `shard` (i, n) keeps passages i, i + n, ...; all n
    together give the results of one index, exactly for BM25 and up to the encoder's rounding for a dense one.
    """
    folder = Path(folder)
    if shard is not None and not 0 <= shard[0] < shard[1]:
        raise UserError(f"A shard must be i of n with 0 ≤ i < n. Got {shard[0]} of {shard[1]}. Shards count from 0.")
    if retriever is None and backend is not None:
        name = "exact" if backend == "torch" else backend if isinstance(backend, str) else backend.name
        raise UserError(
            f"--kind needs a dense index, and without a retriever the index is lexical (BM25). Got {name}.\n"
            "Add --retriever FOLDER, or leave out the kind."
        )
    for part, mark in ((PASSAGES, STORE), (INDEX, ABOUT)):
        check_own_folder(folder / part, mark, "An index")
    if retriever is None:
        require_lexical()
    elif backend not in (None, "torch"):
        faiss_library("This kind of index")
    loaded = None if retriever is None else load_retriever(retriever)
    with _or_nothing(folder):
        return _built(source, folder, loaded, backend or "torch", shard)


def _built(
    source: Source, folder: Path, loaded: tuple[Retriever, Any] | None, backend: Backend, shard: tuple[int, int] | None
) -> PassageIndex:
    if isinstance(source, Passages) and shard is None:
        source.save(folder / PASSAGES)
        passages = source
    else:
        passages = Passages.build(_rows(source), folder / PASSAGES, shard)
    if loaded is None:
        # Second pass over the source: a shard's scores depend on the words of all passages.
        statistics = None if passages.shard is None else TermStatistics.of(_terms_of_rows(source))
        index = LexicalIndex(terms_of(_joined(one.title, one.text) for one in passages), statistics=statistics)
        save_index(index, passages, terms_of_store(passages), folder / INDEX)
        return PassageIndex(passages, index)
    model, tokenizer = loaded
    index = Library(passages, tokenizer, model.config.max_position_embeddings, backend).embed(model.passages)
    built = PassageIndex(passages, index, model, tokenizer)
    recall = _recall(built, index, source) if index.is_approximate else None
    save_index(index, passages, tower_digest(model.passages, tokenizer), folder / INDEX, recall)
    return built._replace(recall=() if recall is None else (recall,))


def _recall(built: PassageIndex, index: DenseIndex, source: Source) -> SearchRecall:
    """Recall on questions of the source, or on texts of passages, sampled with a fixed seed."""
    questions: Sequence[str] = ()
    if isinstance(source, str | Path) and (load_world(str(source)) or is_benchmark(Path(source))):
        questions = load_benchmark(source).questions
    num = len(questions) or len(built.passages)
    drawn = sorted(stream("search-recall").choice(num, min(NUM_QUERIES, num), replace=False).tolist())
    texts = [questions[row] if questions else built.passages[row].text for row in drawn]
    return search_recall(index, built.queries(texts), what="questions" if questions else "passages")


def _terms_of_rows(source: Source) -> Iterator[list[Hashable]]:
    for row in _rows(source):
        fields = {"text": row} if isinstance(row, str) else row
        if fields["text"].strip():
            yield from terms_of([_joined(fields.get("title") or "", fields["text"])])


def _joined(title: str, text: str) -> str:
    return f"{title} {text}".strip()


@contextmanager
def _or_nothing(folder: Path) -> Iterator[None]:
    """If building fails, remove the folder unless it existed before."""
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    try:
        yield
    except BaseException:
        if missing:
            shutil.rmtree(folder, ignore_errors=True)
        for path in missing[1:]:
            with suppress(OSError):  # another process created a file meanwhile
                path.rmdir()
        raise


def _rows(source: Source) -> Iterator[dict[str, Any] | str]:
    """Passages of a store, a benchmark, a world of facts, or a corpus."""
    if isinstance(source, Passages):
        for one in source:
            yield {"title": one.title, "text": one.text, "entity": one.entity, "facts": one.facts}
    elif isinstance(source, Corpus):
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
