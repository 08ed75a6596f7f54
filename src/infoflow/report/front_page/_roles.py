"""The card of the command `heads`: how many heads hold a role, and the best head of each role."""

import pandas as pd
from markupsafe import Markup, escape

from infoflow.heads import HEAD_ROLES

from .._in_words import counted, decimals, listed, number, two_digits
from .._model_tables import ModelTables
from ._measures import Card

_ROWS = 6  # roles in the picture
_NAMES = {"positional -1": "previous token", "positional +1": "next token"}
_WIDTH, _ROW, _LEFT, _RIGHT, _TOP = 320, 21, 132, 12, 4


def roles_card(tables: ModelTables) -> Card | None:
    """The card of a run with the table `head_roles`; None without it."""
    roles = tables.of_run(HEAD_ROLES.name)
    if roles is None or (best := _best(roles)).empty:
        return None
    held = roles[roles["holds"]]
    places = ["stack", "kind", "layer", "head"]
    every, holding = len(roles[places].drop_duplicates()), len(held[places].drop_duplicates())
    question = "Which roles do heads hold?"
    if held.empty:
        sentence = f"None of {every} heads holds a role: no score is clearly above its limit."
    else:
        groups = held.assign(role=held["role"].map(_group)).drop_duplicates([*places, "role"])["role"].value_counts()
        stated = listed([f"{name} ({count})" for name, count in groups.items()])
        sentence = f"{holding} of {counted(every, 'head')} hold a role: {stated}."
    first = best.iloc[0]
    digits = decimals(first["held_out_low"], first["held_out_high"], first["held_out"])
    value, low, high = (number(float(first[name]), digits) for name in ("held_out", "held_out_low", "held_out_high"))
    return Card(
        figure="head-map",
        question=question,
        sentence=sentence,
        difference=f"{_name(first)}, layer {first['layer']} head {first['head']}: {value} ({low} to {high}); "
        f"limit {two_digits(first['limit'])}, control {two_digits(first['baseline'])}",
        clear=bool(len(held)),
        picture=_picture(best, tables.models.series[0].color, f"{question} {sentence}"),
    )


def _group(role: str) -> str:
    """The group of a role; all relations count together, since there are many."""
    return "positional" if role.startswith("positional") else "syntactic" if "→" in role else role


def _best(roles: pd.DataFrame) -> pd.DataFrame:
    """The best head of each role, held ones and high scores first."""
    scores = roles.dropna(subset=["held_out"]).sort_values(["holds", "held_out"], ascending=False)
    return scores.drop_duplicates("role").head(_ROWS)


def _name(row: pd.Series) -> str:
    name = _NAMES.get(row["role"], row["role"])
    return name[:1].upper() + name[1:]


def _picture(best: pd.DataFrame, color: str, description: str) -> Markup:
    """A bar from 0 to 1 per role with its interval; a tick is the limit for holding the role."""

    def x(share: float) -> float:
        return round(_LEFT + (_WIDTH - _LEFT - _RIGHT) * min(max(share, 0.0), 1.0), 1)

    line = Markup('<line x1="{}" x2="{}" y1="{}" y2="{}" stroke="{}" stroke-width="{}"/>')
    parts = []
    for place, row in enumerate(best.to_dict("records")):
        y = _TOP + _ROW * place + 9
        parts += [
            Markup('<text x="{}" y="{}" text-anchor="end">{}</text>').format(_LEFT - 6, y + 4, escape(_short(row))),
            line.format(x(0), x(row["held_out"]), y, y, color if row["holds"] else "var(--control)", 7),
            line.format(x(row["held_out_low"]), x(row["held_out_high"]), y, y, "currentColor", 1.5),
            line.format(x(row["limit"]), x(row["limit"]), y - 7, y + 7, "currentColor", 1),
        ]
    base = _TOP + _ROW * len(best) + 10
    axis = [(x(0), "0"), (x(1), "1"), ((x(0) + x(1)) / 2, "score; tick: limit")]
    parts += [Markup('<text x="{}" y="{}" text-anchor="middle">{}</text>').format(at, base, text) for at, text in axis]
    return Markup('<svg class="spark" viewBox="0 0 {} {}" role="img" aria-label="{}">{}</svg>').format(
        _WIDTH, base + 4, description, Markup("").join(parts)
    )


def _short(row: dict) -> str:
    """`previous token 0.2`: the role and its head, as layer.head."""
    name = _NAMES.get(row["role"], row["role"]).replace("dependent", "dep")
    return f"{name} {row['layer']}.{row['head']}"
