"""`PassageIndex`: passages and their index in one folder, as `infoflow data index` uses them."""

from collections.abc import Callable, Hashable, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from infoflow.corpus import Vocabulary, load_tokenizer
from infoflow.foundation import UserError
from infoflow.models import quiet_loading, unreadable

from ._found import Found, Searches
from ._index_folder import index_kind, load_index
from ._origins import origins
from ._passages import Passages
from ._plain_tokens import plain_tokens
from ._retriever import Retriever
from ._search_recall import SearchRecall
from ._sharded_index import ShardedIndex
from ._terms import terms_name, terms_of
from ._tower_digest import tower_digest

PASSAGES, INDEX = "passages", "index"
"""Folders of the two parts."""
_BATCH = 256  # questions per encoder batch


class PassageIndex(NamedTuple):
    """Passages, their index, and the retriever with its tokenizer if the index is dense."""

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
            exclude_origin: Whether to leave out passages that contain a question word for word: use it for sentences,
                which come from passages, not for questions.
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
        folder: The folder given there, or the folders of all shards, in any order.
        retriever: The retriever of a dense index.

    Raises:
        UserError: There is none, a file is missing or damaged, the retriever is missing or differs, or a shard is
            missing.
    """
    folders = [folder] if isinstance(folder, str | Path) else folder
    load = None if retriever is None else cache(partial(load_retriever, retriever))  # once for all shards
    opened = [_opened(Path(one), load) for one in folders]
    if len(opened) == 1 and opened[0].passages.shard is None:
        return opened[0]
    passages = Passages.join([one.passages for one in opened])
    by_number = sorted(opened, key=_number)
    recall = tuple(told for one in by_number for told in one.recall)
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
    rows = [torch.tensor([vocabulary.start, *row[:room].tolist(), vocabulary.end]) for row in words]
    ids = pad_sequence(rows, batch_first=True, padding_value=vocabulary.pad)
    return ids, pad_sequence([torch.ones_like(row) for row in rows], batch_first=True)


def terms_of_store(passages: Passages) -> str:
    """The definition of the terms of a store's index; for a shard, with the statistics that weight them."""
    return terms_name() if passages.shard is None else f"{terms_name()} of {passages.shard.whole}"


def load_retriever(folder: Path) -> tuple[Retriever, Any]:
    """A retriever and its tokenizer.

    Raises:
        UserError: The folder holds none, or one of the two is damaged.
    """
    if not (folder / "config.json").is_file():
        raise UserError(
            f"There is no retriever in {folder}: config.json is missing.\n"
            "Name a folder written by training with inverse-cloze, or by Retriever.save_pretrained."
        )
    with quiet_loading():
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
