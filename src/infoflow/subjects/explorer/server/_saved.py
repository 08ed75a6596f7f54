"""The offline page of an exploration: the same views, numbers and settings in one file."""

from typing import Any

from infoflow.report import Explored, view_page

from ._answers import Responses, differences
from ._change import Change
from ._effects import effect
from ._lens import add_guesses, lens_rows
from ._sentence_reading import SentenceReading, add_maps


def saved_page(answers: Responses, key: str, changed: str, state: str, suffix: str) -> tuple[str, str]:
    """Name and text of the file for a reading, and optionally for its change.

    Raises:
        Forgotten: A key is unknown.
    """
    before = answers.readings.of_key(key)
    reading = answers.readings.of_key(changed) if changed else before
    for one in {id(before): before, id(reading): reading}.values():
        add_maps(one)
        add_guesses(one)
    is_changed = reading is not before
    kept: dict[str, Any] = {name: list(rows) for name, rows in answers.kept(reading.key).items()}
    if reading.has_head:
        answers_lens = answers.attempted(lambda: lens_rows(reading, None))
        kept |= {} if "reason" in answers_lens else {"lens": [answers_lens]}
    page = view_page(
        reading.seen,
        Explored(
            state=_own(state, suffix) or "#",
            before=before.seen if is_changed else None,
            told_change=told(reading) if is_changed else "",
            arrays=differences(before.seen, reading.seen) if is_changed else {},
            answers=kept,
            effect=effect(before, reading) if is_changed else None,
        ),
    )
    answers.readings.trim()
    return f"explore-{_plain(reading.subject.model.name)}.html", page


def told(reading: SentenceReading) -> str:
    """The change, in words."""
    change: Change = reading.change
    tokens = reading.sentence.tokens
    parts = [f"“{tokens[stack][index].text}” hidden" for stack, index in change.hide]
    gives = "zeros" if change.mode == "zero" else "its mean"
    parts += [f"{stack} {kind} head {layer}.{head} gives {gives}" for stack, kind, layer, head in change.heads]
    parts += [f"{stack} layer {layer} skipped" for stack, layer in change.layers]
    return f"Ablated: {', '.join(parts)}."


def _own(state: str, suffix: str) -> str:
    """The settings of one of two models, renamed for a page with one model."""
    if not suffix:
        return state
    pairs = [pair.split("=", 1) for pair in state.lstrip("#").split(";") if "=" in pair]
    mine = [f"{name.removesuffix(suffix)}={value}" for name, value in pairs if name.endswith(suffix) or name == "show"]
    return "#;" + ";".join(mine)


def _plain(name: str) -> str:
    """A model's name as part of a file name."""
    kept = (char if char.isascii() and (char.isalnum() or char in "-_.") else "-" for char in name)
    return "".join(kept).strip("-.") or "model"
