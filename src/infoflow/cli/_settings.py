"""`--set training.updates=500`: single settings of a plan from the command line."""

import tomllib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from infoflow.studies import StudyPlan


_Config = TypeVar("_Config")
_SECTIONS = {"analysis": "analysis", "probing": "probes"}


def with_settings(plan: "StudyPlan", settings: Sequence[str]) -> "StudyPlan":
    """The plan with `name=value` settings changed; values are written as in TOML, quotes may be left out.

    Raises:
        UserError: A setting is malformed, unknown, or of the wrong kind.
    """
    from infoflow.foundation import UserError
    from infoflow.studies import StudyPlan

    values = plan.to_json()
    for setting in settings:
        name, value = _split(setting)
        *tables, last = name.split(".")
        table = values
        for position, key in enumerate(tables):
            table = table.setdefault(key, {})  # an unknown one is left to `from_json`, which says what is known
            if not isinstance(table, dict):
                holder = ".".join(tables[: position + 1])
                raise UserError(
                    f"--set must name a setting. {holder} is a setting and contains no others. Got {setting[:80]}.\n"
                    f"Write --set {holder}=VALUE."
                )
        table[last] = value
    return StudyPlan.from_json(values)


def measuring_settings(settings: Sequence[str], sections: tuple[str, ...] = ("analysis",)) -> "StudyPlan":
    """The default plan with `analysis.name=value` settings changed, or those of other sections too."""
    from infoflow.foundation import UserError
    from infoflow.studies import StudyPlan

    if foreign := [setting for setting in settings if setting.partition(".")[0] not in sections]:
        named = " and of ".join(_SECTIONS[one] for one in sections)
        raise UserError(
            f"--set of this command only changes settings of the {named}. Got {foreign[0][:80]}.\n"
            "Write for example --set analysis.clusters=100."
        )
    return with_settings(StudyPlan(), settings)


def changed(config: _Config, section: str, settings: Sequence[str]) -> _Config:
    """The settings of a dataclass with those of `section.name=value` changed.

    Raises:
        UserError: A setting is malformed, unknown, or of the wrong kind.
    """
    import dataclasses

    from infoflow.foundation import UserError

    known = [field.name for field in dataclasses.fields(config)]  # type: ignore[arg-type]
    values = {}
    for setting in settings:
        name, value = _split(setting)
        field = name.removeprefix(f"{section}.")
        if field not in known or name == field:
            raise UserError(
                f"--set of this command only changes settings of {section}. Got {setting[:80]}.\n"
                f"Known settings: {', '.join(f'{section}.{one}' for one in known)}."
            )
        values[field] = tuple(value) if isinstance(value, list) else value
    return dataclasses.replace(config, **values)  # type: ignore[type-var]


def _split(setting: str) -> tuple[str, Any]:
    from infoflow.foundation import UserError, as_written

    name, equals, text = setting.partition("=")
    if not name or not equals:
        raise UserError(f"--set takes name=value, such as --set training.updates=500. Got {setting[:80]}.")
    try:
        read = tomllib.loads(f"value = {text}")
    except tomllib.TOMLDecodeError:
        return name.strip(), text.strip()
    except (RecursionError, ValueError):  # nested thousands deep; a number of thousands of digits
        raise UserError(f"--set {name[:80]} takes a plain value, such as 500 or [1, 2]. Got {text[:40]}….") from None
    if list(read) != ["value"]:
        raise UserError(f"--set takes one setting at a time. Got {as_written(setting)}. Repeat --set for each.")
    return name.strip(), read["value"]
