"""`infoflow data index`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from ._options import limited
from ._session import DocumentColumn, Documents, Log, TextColumn, reporting
from ._show import show, show_table

if TYPE_CHECKING:
    from infoflow.retrieval import PassageIndex, Passages


def index(
    source: str,
    /,
    *,
    out: Path | None = None,
    ask: Annotated[tuple[str, ...], Parameter(negative="")] = (),
    top: Annotated[int, Parameter(converter=limited("Count"))] = 5,
    exclude_origin: Annotated[bool, Parameter(negative="")] = False,
    retriever: Path | None = None,
    text_column: TextColumn = None,
    document_column: DocumentColumn = None,
    documents: Documents = False,
    log: Log = None,
) -> None:
    """Build an index of passages, or look something up in one.

    `infoflow data index facts:256 --out facts-index` builds, `infoflow data index facts-index --ask "..."` asks.

    Args:
        source: What to build of: a corpus (its sentences, or where documents are read its documents), facts:SIZE, or a
            folder with a benchmark of retrieval (BEIR, ReQA); or an index that was built.
        out: Folder of the index to build; without it SOURCE is an index.
        ask: A question to look up; may be given again.
        top: Passages shown for each question.
        exclude_origin: Leave out passages that hold a question word for word: for sentences taken from passages.
        retriever: Folder of a trained retriever, for a dense index; by default BM25 over words.
    """
    with reporting(log):
        from infoflow.corpus import load_corpus
        from infoflow.foundation import UserError
        from infoflow.retrieval import build_passage_index, open_passage_index

        read = {"text_column": text_column, "document_column": document_column, "documents": documents}
        read = {name: value for name, value in read.items() if value}
        if read and out is None:
            option = f"--{next(iter(read)).replace('_', '-')}"
            raise UserError(f"{option} says what an index is built of, and {source} is built. Add --out to build one.")
        if out is not None:
            built = build_passage_index(load_corpus(source, **read) if read else source, out, retriever)
            show(f"{out}: {_size(built.passages)}")
        else:
            built = open_passage_index(source, retriever)
            if not ask:
                show(f"{source}: {_size(built.passages)}")
        if ask:
            _show_found(built, ask, top, exclude_origin)


def _size(passages: "Passages") -> str:
    beside = {"without text, left out": passages.num_empty, "repeated": passages.num_repeated}
    more = "".join(f", {count:,} {what}" for what, count in beside.items() if count)
    return f"{len(passages):,} passages{more}"


def _show_found(index: "PassageIndex", questions: tuple[str, ...], top: int, exclude_origin: bool) -> None:
    from infoflow.corpus import printable

    found = index.look_up(questions, top, exclude_origin)
    for question in dict.fromkeys(questions):
        show()
        rows = found[found.question == question]
        show(printable(question) if len(rows) else f"{printable(question)}: no passage shares a word with it")
        if len(rows):
            texts = [
                printable(f"{title}: {text}".lstrip(": ")) for title, text in zip(rows.title, rows.text, strict=True)
            ]
            numbers = zip(rows["rank"], rows.score, rows.passage, texts, strict=True)
            lines = [[str(rank), f"{score:.3f}", str(id), text] for rank, score, id, text in numbers][:top]
            show_table(["rank", "score", "passage", "text"], lines)
