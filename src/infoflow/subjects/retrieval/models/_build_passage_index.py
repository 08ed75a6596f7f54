"""Builds passages and their index in a folder, as `infoflow data index --out` does."""

import shutil
from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import groupby
from pathlib import Path
from typing import Any

from infoflow.corpus import Corpus, load_corpus, load_world
from infoflow.foundation import UserError, check_own_folder, stream

from ._approximate import faiss_library
from ._benchmarks import is_benchmark, load_benchmark
from ._bm25 import LexicalIndex, require_lexical
from ._dense_index import Backend, DenseIndex
from ._index_folder import ABOUT, save_index
from ._library import Library
from ._passage_index import INDEX, PASSAGES, PassageIndex, load_retriever, terms_of_store
from ._passages import ABOUT as STORE
from ._passages import Passages
from ._retriever import Retriever
from ._search_recall import NUM_QUERIES, SearchRecall, search_recall
from ._term_statistics import TermStatistics
from ._terms import terms_of
from ._tower_digest import tower_digest

Source = str | Path | Corpus | Passages


def build_passage_index(
    source: Source,
    folder: Path | str,
    retriever: Path | None = None,
    backend: Backend | None = None,
    shard: tuple[int, int] | None = None,
) -> PassageIndex:
    """Passages and their index, written to `folder`.

    Args:
        source: A store; a folder with a benchmark (see `load_benchmark`); `facts`, `facts:256`; a corpus by name or
            path, whose sentences become passages; or a `Corpus`, whose documents become passages if it has them.
        folder: An existing store and index there are replaced.
        retriever: A folder with a `Retriever` and its tokenizer makes a dense index; None: BM25 over words.
        backend: Backend of a dense index; None: exact search by torch. An approximate one reports recall@10 on 200
            questions of the source, or on passages if it has no questions.
        shard: (i, n): only passages i, i + n, i + 2n, .... All n shards together give the results of one index, exactly
            for BM25, and up to the encoder's rounding for a dense one, since batches differ.

    Raises:
        UserError: The source cannot be read or has no passage, the retriever cannot be loaded, the backend does not
            fit, the shard does not exist, or `folder` cannot be written.
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
    source: Source,
    folder: Path,
    loaded: tuple[Retriever, Any] | None,
    backend: Backend,
    shard: tuple[int, int] | None,
) -> PassageIndex:
    if isinstance(source, Passages) and shard is None:
        source.save(folder / PASSAGES)
        passages = source
    else:
        passages = Passages.build(_rows(source), folder / PASSAGES, shard)
    if loaded is None:
        # Second pass over the source: a shard's scores depend on the words of all passages.
        statistics = None if passages.shard is None else TermStatistics.of(_terms_of_rows(source))
        index = LexicalIndex(terms_of(_whole(passages)), statistics=statistics)
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
    """Terms of every passage of a store of the source."""
    for row in _rows(source):
        fields = {"text": row} if isinstance(row, str) else row
        if fields["text"].strip():
            yield from terms_of([_joined(fields.get("title") or "", fields["text"])])


def _whole(passages: Passages) -> Iterator[str]:
    """Title and text of each passage."""
    return (_joined(one.title, one.text) for one in passages)


def _joined(title: str, text: str) -> str:
    return f"{title} {text}".strip()


@contextmanager
def _or_nothing(folder: Path) -> Iterator[None]:
    """Removes a folder that did not exist before if building it fails."""
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
