"""`--set training.updates=500`: single settings of a plan from the command line."""

import tomllib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from infoflow.studies import AnalysisPlan, StudyPlan


def with_settings(plan: "StudyPlan", settings: Sequence[str]) -> "StudyPlan":
    """The plan with `name=value` settings changed; values are written as in TOML, quotes may be left out.

    Raises:
        UserError: A setting is malformed, unknown, or of the wrong kind.
    """
    from infoflow.studies import StudyPlan

    values = plan.to_json()
    for setting in settings:
        name, value = _split(setting)
        *tables, last = name.split(".")
        table = values
        for key in tables:
            # An unknown or scalar table is left to `from_json`, which says what is known.
            table = table.setdefault(key, {}) if isinstance(table.get(key, {}), dict) else {}
        table[last] = value
    return StudyPlan.from_json(values)


def analysis_settings(settings: Sequence[str]) -> "AnalysisPlan":
    """The default analysis with `analysis.name=value` settings changed."""
    from infoflow.foundation import UserError
    from infoflow.studies import StudyPlan

    if foreign := [setting for setting in settings if not setting.startswith("analysis.")]:
        raise UserError(
            f"Here --set changes settings of the analysis only. Got {foreign[0]}.\n"
            "Write for example --set analysis.clusters=100."
        )
    return with_settings(StudyPlan(), settings).analysis


def _split(setting: str) -> tuple[str, Any]:
    from infoflow.foundation import UserError

    name, equals, text = setting.partition("=")
    if not name or not equals:
        raise UserError(f"--set takes name=value, such as --set training.updates=500. Got {setting}.")
    try:
        return name.strip(), tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return name.strip(), text.strip()
