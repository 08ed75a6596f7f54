"""`infoflow data index`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from infoflow.cli._options import limited
from infoflow.cli._session import (
    DocumentColumn,
    Documents,
    Log,
    TextColumn,
    estimate,
    parse_shard,
    reporting,
    show,
    show_table,
)

if TYPE_CHECKING:
    import pandas as pd

    from .models import Benchmark, Found, PassageIndex

Kind = Literal["exact", "hnsw", "ivf"]
_ASKED, _TESTED = 5, 100  # default number of passages for a question, and for a question of a benchmark


def index(
    *source: str,
    out: Path | None = None,
    ask: Annotated[tuple[str, ...], Parameter(negative="")] = (),
    benchmark: str | None = None,
    top: Annotated[int | None, Parameter(converter=limited("Count"))] = None,
    exclude_origin: Annotated[bool, Parameter(negative="")] = False,
    retriever: Path | None = None,
    kind: Kind | None = None,
    shard: str | None = None,
    trec: Path | None = None,
    qrels: Path | None = None,
    text_column: TextColumn = None,
    document_column: DocumentColumn = None,
    documents: Documents = False,
    log: Log = None,
) -> None:
    """Build an index of passages, or search one.

    `infoflow data index facts:256 --out facts-index` builds, `infoflow data index facts-index --ask "..."` asks.

    Args:
        source: What to index: a corpus (its sentences, or its documents if documents are read), facts:SIZE, or a
            folder with a retrieval benchmark (BEIR, ReQA). Or what to search: an existing index, or all shards of one.
        out: Folder of the new index; without it SOURCE must be an existing index.
        ask: A question to look up. May be repeated.
        benchmark: Ask the questions of a benchmark folder or of facts:SIZE; the index must hold its passages.
        top: Passages to find for each question. Default: 5; for a benchmark, 100.
        exclude_origin: Exclude passages that contain the question verbatim, for questions taken from passages.
        retriever: Folder of a trained retriever, for a dense index. Default: BM25 over words.
        kind: Search of a dense index: exact (the default), hnsw (a graph: faster) or ivf (short codes: smaller). The
            last two are approximate; their recall is reported.
        shard: i/n: build only passages i, i + n, i + 2n, ... (i from 0 to n-1); to search, give all n folders.
        trec: File for the results in TREC's format; queries and passages have their names in the benchmark, or
            are numbered from 0.
        qrels: File for the benchmark's relevance judgements, in the same format.
    """
    with reporting(log):
        from infoflow.foundation import UserError

        from .models import check_run_file, load_benchmark, open_passage_index, write_qrels

        if not source:
            raise UserError("data index needs a source to index, or an index to search. Got nothing.")
        _check_questions(ask, benchmark, trec, qrels)
        read = {"text_column": text_column, "document_column": document_column, "documents": documents}
        read = {name: value for name, value in read.items() if value}
        tested = load_benchmark(benchmark) if benchmark else None
        if trec is not None:
            check_run_file(trec)
        if qrels is not None and tested is not None:  # before the search: refuses to replace a file
            write_qrels(qrels, tested.relevant, tested.question_names, tested.passage_names)
        if out is not None:
            built = _build(source, out, read, retriever, kind, shard)
        else:
            _check_built({**read, "kind": kind, "shard": shard}, source[0])
            built = open_passage_index([Path(folder) for folder in source], retriever)
        if out is not None or not (ask or benchmark):
            show(f"{out or ' '.join(source)}: {_size(built)}")
        if ask:
            _ask(built, ask, top or _ASKED, exclude_origin, trec)
        if tested is not None:
            _test(built, tested, top or _TESTED, exclude_origin, trec)


def _check_questions(ask: tuple[str, ...], benchmark: str | None, trec: Path | None, qrels: Path | None) -> None:
    from infoflow.foundation import UserError

    if ask and benchmark:
        raise UserError("--ask and --benchmark cannot be combined. Got both. Leave out one of them.")
    if trec and not (ask or benchmark):
        raise UserError("--trec saves search results. Add --ask QUESTION or --benchmark FOLDER.")
    if qrels and not benchmark:
        raise UserError("--qrels saves a benchmark's relevance judgements. Add --benchmark FOLDER.")


def _check_built(given: dict[str, Any], source: str) -> None:
    from infoflow.foundation import UserError

    for name, value in given.items():
        if value:
            what = "how an index is built" if name in ("kind", "shard") else "how its source is read"
            option = f"--{name.replace('_', '-')}"
            raise UserError(f"{option} sets {what}, but {source} is already an index. Add --out to build a new one.")


def _build(
    source: tuple[str, ...],
    out: Path,
    read: dict[str, Any],
    retriever: Path | None,
    kind: Kind | None,
    shard: str | None,
) -> "PassageIndex":
    from infoflow.corpus import load_corpus
    from infoflow.foundation import UserError

    from .models import HNSW, IVFPQ, build_passage_index

    first, *others = source
    if others:
        raise UserError(f"An index is built from one source. Got {len(source)}: {', '.join(source)}. Name one.")
    part = None if shard is None else parse_shard(shard)
    backend = None if kind is None else {"exact": "torch", "hnsw": HNSW(), "ivf": IVFPQ()}[kind]
    return build_passage_index(load_corpus(first, **read) if read else first, out, retriever, backend, part)


def _size(built: "PassageIndex") -> str:
    passages = built.passages
    further = {"without text, excluded": passages.num_empty, "repeated": passages.num_repeated}
    more = "".join(f", {count:,} {what}" for what, count in further.items() if count)
    of = "" if passages.shard is None else f"{len(passages):,} of "
    total = len(passages) if passages.shard is None else passages.shard.total
    return f"{of}{total:,} passages{more}{_recall(built)}"


def _recall(built: "PassageIndex") -> str:
    """Recall of an approximate search; for shards, that of the worst one."""
    if not built.recall:
        return ""
    lowest = min(built.recall, key=lambda one: one.recall)
    of = "" if len(built.recall) == 1 else " in the worst shard"
    return f"; recall@{lowest.k} {lowest.recall:.3f} against exact search{of}, on {lowest.num_queries} {lowest.queries}"


def _ask(built: "PassageIndex", questions: tuple[str, ...], top: int, exclude_origin: bool, trec: Path | None) -> None:
    from .models import write_run

    different = tuple(dict.fromkeys(questions))
    found = built.search(different, min(top, len(built.passages)), exclude_origin)
    if trec is not None:
        write_run(trec, found)
    _show_found(built.rows(different, found), different)


def _test(built: "PassageIndex", tested: "Benchmark", top: int, exclude_origin: bool, trec: Path | None) -> None:
    from infoflow.foundation import UserError

    from .models import write_run

    if tested.passages.digest != built.passages.digest:
        raise UserError(
            f"The index does not hold the passages that the questions of {tested.name} are about.\n"
            f"Build an index of it: infoflow data index {tested.name} --out FOLDER."
        )
    found = built.search(tested.questions, min(top, len(built.passages)), exclude_origin)
    if trec is not None:
        write_run(trec, found, tested.question_names, tested.passage_names)
    _show_scores(tested, found)


def _show_scores(tested: "Benchmark", found: "Found") -> None:
    from .models import retrieval_scores

    ranked, num = {"index": found.ids}, len(tested.passages)
    table = retrieval_scores(ranked, tested.relevant, tested.questions, num, cuts=(1, 5, 20, 100))
    rows = table[(table["system"] == "index") & (table["metric"] != "collapse")]
    show(f"{len(tested.questions):,} questions")
    lines = [
        [
            one.metric if not one.k else f"{one.metric}@{one.k}",
            estimate(one.value, one.low, one.high),
            f"{one.baseline:.3f}",
        ]
        for one in rows.itertuples()
    ]
    show_table(["metric", "mean [95%]", "at random"], lines)


def _show_found(found: "pd.DataFrame", questions: tuple[str, ...]) -> None:
    from infoflow.corpus import printable

    for question in questions:
        show()
        rows = found[found.question == question]
        show(printable(question) if len(rows) else f"{printable(question)}: no passage shares a word with it")
        if len(rows):
            texts = [
                printable(f"{title}: {text}".lstrip(": ")) for title, text in zip(rows.title, rows.text, strict=True)
            ]
            numbers = zip(rows["rank"], rows.score, rows.passage, texts, strict=True)
            lines = [[str(rank), f"{score:.3f}", str(id), text] for rank, score, id, text in numbers]
            show_table(["rank", "score", "passage", "text"], lines)
