"""Conversations as running text: rendered by a tokenizer's chat template, with the role of each word."""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import groupby, pairwise, product
from pathlib import Path
from typing import Any

from jinja2 import TemplateError

from infoflow._transformers import PreTrainedTokenizerBase
from infoflow.foundation import UserError, as_written, running_word_spans

from ._alignment import control_tokens
from ._columns import RENDERED, WORD_STARTS, Row, plain_text
from ._corpus import Corpus
from ._encoded import template_digest
from ._lines import printable, read_lines, unused_signs
from ._load import hub_dataset
from ._tables import parsed_json, read_document

ROLE = "role"
"""The tag of each word: the role of its message, or `template` outside the contents of messages."""
_TEMPLATE = "template"
_COLUMNS = ("text", "words", WORD_STARTS, ROLE, RENDERED)
_FORMS = 'Write {"messages": [{"role": "user", "content": "..."}, ...]} for each (or ShareGPT\'s conversations).'
_SHAREGPT = {"human": "user", "gpt": "assistant", "chatgpt": "assistant", "model": "assistant", "observation": "tool"}
_DATE = "26 Jul 2024"  # replaces today's date in templates; from Llama 3's own example
_GENERATION = re.compile(r"\{%-?\s*generation\s*-?%\}")
_Span = tuple[int, int, str]  # first character, end, role
_Message = dict[str, Any]


def load_chat(source: str, tokenizer: PreTrainedTokenizerBase, name: str = "the model") -> Corpus:
    """Conversations as `tokenizer.apply_chat_template` writes them, one per row, with the tag `role` of each word.

    Each conversation is `{"messages": [{"role", "content"}, ...]}`, ShareGPT's `{"conversations": [{"from", "value"},
    ...]}`, or a list of messages; a `.json` file holds one or a list of them, a `.jsonl` file one per line (both also
    `.gz`), and `hf:NAME` names a data set. Control tokens in the text stay control tokens when it is encoded. `name` is
    the name of the tokenizer's model, for messages.
    """
    _require_template(tokenizer, name)
    stamp = template_digest(tokenizer)
    rows = ({**_row(*one, tokenizer), RENDERED: stamp} for one in _conversations(source))
    return Corpus.from_rows(rows, _COLUMNS, Path(source).name)


def chat_text(said: str, tokenizer: PreTrainedTokenizerBase, name: str = "the model") -> str:
    """A user's message, or the first conversation of a `.json` or `.jsonl` file, as the chat template writes it."""
    _require_template(tokenizer, name)
    messages = [{"role": "user", "content": said}]
    where = "the message"
    if said.removesuffix(".gz").lower().endswith((".json", ".jsonl")):
        found = next(_conversations(said), None)
        if found is None:
            raise UserError(f"{printable(said)[:200]} holds no conversation.\n{_FORMS}")
        where, messages = found
    return _rendered(messages, tokenizer, where)[0]


def _require_template(tokenizer: PreTrainedTokenizerBase, name: str) -> None:
    if not tokenizer.chat_template or not tokenizer.is_fast:
        lacking = "has no chat template" if tokenizer.is_fast else "is not a fast one"
        raise UserError(
            f"--chat needs a model whose tokenizer has a chat template, and that of {name} {lacking}. Use the model's "
            "instruction-tuned version, name another tokenizer (--tokenizer), or leave out --chat."
        )


def _conversations(source: str) -> Iterator[tuple[str, list[_Message]]]:
    """Each conversation's messages, and its position in the source for error messages."""
    path = Path(source)
    kind = Path(path.name.removesuffix(".gz")).suffix.lower()
    if source.startswith("hf:"):
        values = enumerate(hub_dataset(source.removeprefix("hf:")), start=1)
    elif kind == ".jsonl" and path.exists():
        values = ((n, parsed_json(line, f"{path}, line {n}")) for n, line in read_lines(path) if line.strip())
    elif kind == ".json" and path.exists():
        whole = parsed_json(read_document(path), str(path))
        several = isinstance(whole, list) and not _is_messages(whole)
        values = enumerate(whole if several else [whole], start=1)
    else:
        raise UserError(
            f"--chat reads conversations from a .json or .jsonl file or from hf:NAME. Got {printable(source)[:200]}, "
            f"which {'is of another kind' if path.exists() else 'does not exist'}. Name it: --corpus chats.jsonl."
        )
    for number, value in values:
        where = f"{printable(source)}, conversation {number}"
        yield where, _messages(value, where)


def _is_messages(value: Any) -> bool:
    if not isinstance(value, list) or not all(isinstance(one, Mapping) for one in value):
        return False
    return bool(value) and all("role" in one or {"from", "value"} <= set(one) for one in value)


def _messages(value: Any, where: str) -> list[_Message]:
    names = [
        name for name in ("messages", "conversations", "conversation") if isinstance(value, dict) and name in value
    ]
    held: Any = value[names[0]] if names else value
    if not _is_messages(held):
        raise UserError(f"{where}: expected a list of messages. Got {as_written(value)[:200]}.\n{_FORMS}")
    return [_message(one, where) for one in held]


def _message(value: Mapping[str, Any], where: str) -> _Message:
    """The message with `role` and, as text, `content`; further fields, such as tool calls, are kept."""
    own = {name: one for name, one in value.items() if one is not None}
    if "role" not in own:
        sender = str(own.pop("from"))
        own = {"role": _SHAREGPT.get(sender, sender), "content": own.pop("value", ""), **own}
    content = own.get("content", "")
    if isinstance(content, list) and all(isinstance(part, Mapping) and "text" in part for part in content):
        content = "".join(str(part["text"]) for part in content)
    if not isinstance(own["role"], str) or not own["role"].strip() or own["role"] == _TEMPLATE:
        raise UserError(f"{where}: a role must be a word, such as user. Got {as_written(own['role'])}.\n{_FORMS}")
    if not isinstance(content, str):
        raise UserError(f"{where}: the content of a message must be text. Got {as_written(content)}.\n{_FORMS}")
    return {**own, "content": plain_text(content, where, 1)}


def _row(where: str, messages: list[_Message], tokenizer: PreTrainedTokenizerBase) -> Row:
    text, generated = _rendered(messages, tokenizer, where)
    roles = [_TEMPLATE] * len(text)
    for start, end, role in [*_contents(text, messages, tokenizer, where), *generated]:
        roles[start:end] = [role] * (end - start)
    words, starts, tags = [], [], []
    control = set(control_tokens(tokenizer).values())
    for start, end, role in _pieces(text, roles, control):
        if text[start:end] in control:  # no word
            continue
        found = running_word_spans(text[start:end]) or [(0, end - start)]
        words += [text[start + first : start + last] for first, last in found]
        starts += [start, *(start + first for first, _ in found[1:])]  # the first one includes preceding white space
        tags += [role] * len(found)
    return {"text": text, "words": words, WORD_STARTS: starts, ROLE: tags}


def _rendered(messages: Sequence[_Message], tokenizer: PreTrainedTokenizerBase, where: str) -> tuple[str, list[_Span]]:
    """The text, and the spans that the template marks as written by the assistant."""
    from transformers.utils.chat_template_utils import render_jinja_template  # slow import

    try:
        template = tokenizer.get_chat_template()
        if not _GENERATION.search(template):
            text = tokenizer.apply_chat_template(list(messages), tokenize=False, date_string=_DATE)
            return str(text), []
        whole: Any = render_jinja_template(
            conversations=[list(messages)],
            chat_template=template,
            return_assistant_tokens_mask=True,
            date_string=_DATE,
            **tokenizer.special_tokens_map,
        )
    except (TemplateError, ValueError, TypeError, KeyError) as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
        raise UserError(
            f"{where}: the model's chat template refuses it: {reason}.\nCorrect the conversation, or leave it out."
        ) from None
    return whole[0][0], [(start, end, "assistant") for start, end in whole[1][0]]


def _contents(
    text: str, messages: Sequence[_Message], tokenizer: PreTrainedTokenizerBase, where: str
) -> Iterator[_Span]:
    """The characters of each message's content.

    The conversation is rendered again with a mark before and after each content, inside its white space, which many
    templates strip. Without the marks, the text must be the same as before. To find how much white space is kept, all
    contents are stripped and rendered with marks once more; the difference is the white space.
    """
    first, last = unused_signs(text)
    said = [index for index, one in enumerate(messages) if one["content"].strip()]

    def between(strip: bool) -> list[str]:
        """Text before, inside and after each content."""
        marked = [dict(one) for one in messages]
        for place in said:
            whole = messages[place]["content"]
            core = whole.strip()
            before, behind = ("", "") if strip else whole.split(core, 1)
            marked[place]["content"] = f"{before}{first}{core}{last}{behind}"
        return re.split(f"[{first}{last}]", _rendered(marked, tokenizer, where)[0])

    full, bare = between(strip=False), between(strip=True)
    cores = [messages[place]["content"].strip() for place in said]
    if "".join(full) != text or full[1::2] != cores or bare[1::2] != cores:
        raise UserError(
            f"{where}: the model's chat template leaves out, repeats or rewrites parts of messages, so the roles of "
            "its words cannot be determined. Leave it out, or name another tokenizer (--tokenizer)."
        )
    spaces = [messages[place]["content"].split(core, 1) for place, core in zip(said, cores, strict=True)]
    leading, trailing = [0] * len(said), [0] * len(said)
    for gap in range(len(said) + 1):
        behind = spaces[gap - 1][1] if gap else ""
        before = spaces[gap][0] if gap < len(said) else ""
        kept = _kept(full[2 * gap], bare[2 * gap], behind, before)
        if gap:
            trailing[gap - 1] = kept[0]
        if gap < len(said):
            leading[gap] = kept[1]
    end = 0
    for number, index in enumerate(said):
        start = end + len(full[2 * number])
        end = start + len(cores[number])
        yield start - leading[number], end + trailing[number], messages[index]["role"]


def _kept(full: str, bare: str, behind: str, before: str) -> tuple[int, int]:
    """How many characters of white space are kept after one content and before the next."""
    sizes = product(range(len(behind), -1, -1), range(len(before) + 1))
    fits = ((after, ahead) for after, ahead in sizes if full == behind[:after] + bare + before[len(before) - ahead :])
    return next(fits, (0, 0))


def _pieces(text: str, roles: Sequence[str], control: Collection[str]) -> Iterator[_Span]:
    """Pieces of the text with a single role each, cut at control tokens."""
    cuts = {0, len(text)}
    if control:
        longest_first = "|".join(map(re.escape, sorted(control, key=len, reverse=True)))
        cuts |= {place for found in re.finditer(longest_first, text) for place in found.span()}
    start = 0
    for role, group in groupby(roles):
        end = start + len(list(group))
        inside = [start, *sorted(cut for cut in cuts if start < cut < end), end]
        yield from ((a, b, role) for a, b in pairwise(inside))
        start = end
