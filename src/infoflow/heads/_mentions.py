"""Mentions of entities in a sentence, from the bracket notation of coreference annotation."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

_BRACKET = re.compile(r"(\()?([^()|\s]+)(\))?|(\))")
_NAME = re.compile(r"^([^-\[]+)")
_KIND = re.compile(r"^[^-\[]+(?:\[[^\]]*\])?-([^-\d\[][^-\[]*)")
_HOLES = ("_", "-", "*", "")


@dataclass(frozen=True, kw_only=True, slots=True)
class Mention:
    """Words start..end (both included) that refer to an entity."""

    entity: str
    start: int
    end: int
    head: int  # its head word
    type: str  # pronoun, proper or nominal; "" where parts of speech are not known
    kind: str = ""  # of the entity, as the brackets name it: person, place, ...; "" where they do not


def read_mentions(
    annotation: Sequence[str], heads: Sequence[int] | None = None, upos: Sequence[str] | None = None
) -> list[Mention]:
    """The mentions of a sentence, by head word.

    Args:
        annotation: For each word what begins and ends there: `(12` begins a mention of entity 12, `12)` ends it, `(12)`
            is one word; several are joined by `|` or nothing. CorefUD's `(e12-person-1` names the entity before the
            first hyphen and its kind behind it. `_`, `-` and `*` are holes. Brackets without a partner are dropped.
        heads: Governor of each word: a mention's head word is the first whose governor lies outside it. Without trees
            it is the last word.
        upos: Universal part of speech of each word, for the type.

    >>> [(m.entity, m.start, m.end) for m in read_mentions(["(1", "1)", "(2)|(1)"])]
    [('1', 0, 1), ('2', 2, 2), ('1', 2, 2)]
    """
    open_at: dict[str, list[tuple[int, str]]] = {}
    spans: list[tuple[str, str, int, int]] = []
    for word, text in enumerate(annotation):
        if text in _HOLES:
            continue
        for begins, name, ends, _ in _BRACKET.findall(text):
            match = _NAME.match(name)
            if match is None:
                continue
            entity = match.group(1)
            if begins:
                kind = _KIND.match(name)
                open_at.setdefault(entity, []).append((word, kind.group(1) if kind else ""))
            if ends and open_at.get(entity):
                start, named = open_at[entity].pop()
                spans.append((entity, named, start, word))
    found = [_mention(*span, heads, upos) for span in spans]
    return sorted(found, key=lambda mention: mention.head)


def _mention(
    entity: str, named: str, start: int, end: int, heads: Sequence[int] | None, upos: Sequence[str] | None
) -> Mention:
    inside = range(start, end + 1)
    head = end if heads is None else next((word for word in inside if heads[word] not in inside), end)
    kinds = {"PRON": "pronoun", "PROPN": "proper"}
    kind = "" if upos is None else kinds.get(upos[head], "nominal")
    return Mention(entity=entity, start=start, end=end, head=head, type=kind, kind=named)


def antecedents(mentions: Sequence[Mention], index: int) -> set[int]:
    """Head words of the earlier mentions of the same entity."""
    own = mentions[index]
    return {m.head for m in mentions if m.entity == own.entity and m.head < own.head}


def nearest(mentions: Sequence[Mention], index: int) -> int | None:
    """Head word of the nearest mention before this one."""
    return max((m.head for m in mentions if m.head < mentions[index].head), default=None)


def head_match(mentions: Sequence[Mention], index: int, words: Sequence[str]) -> int | None:
    """Head word of the last mention before this one with the same head word, in any case."""
    own = words[mentions[index].head].lower()
    return max(
        (m.head for m in mentions if m.head < mentions[index].head and words[m.head].lower() == own), default=None
    )
