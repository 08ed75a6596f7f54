"""Options of the command line: limits, how a model reads texts, and single settings of a plan."""

import re
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, get_origin

from cyclopts import Parameter, Token

if TYPE_CHECKING:
    from infoflow.models import Model
    from infoflow.studies import StudyPlan


def limited(name: str) -> Callable[[Any, Sequence[Token]], Any]:
    """A converter to the type that `infoflow.foundation` calls `name`; imported on first use, so that help is instant.

    cyclopts itself would round: `--seed 1.5` gave seed 2.
    """

    def convert(kind: Any, tokens: Sequence[Token]) -> Any:
        from infoflow import foundation

        hint = getattr(foundation, name)
        values = tuple(_read(hint, one) for one in tokens)
        return values if get_origin(kind) is tuple else values[0]

    return convert


def count_or_share(_: Any, tokens: Sequence[Token]) -> str:
    """A converter to the text of a whole number, or of a share such as `50%`."""
    from infoflow.foundation import UserError, as_written

    share = re.fullmatch(r"([0-9]{1,3}(?:\.[0-9]{1,6})?)\s*%", tokens[0].value.strip())
    if share and float(share[1]) <= 100:
        return f"{share[1]}%"
    try:
        return str(limited("CountOrNone")(int, tokens))
    except UserError:
        given, name = tokens[0].value, tokens[0].keyword or "The argument"
        raise UserError(
            f"{name} must be a whole number, or a share of at most 100%. Got {as_written(given)}. "
            f"Write for example {name} 50%."
        ) from None


def counts_or_shares(_: Any, tokens: Sequence[Token]) -> tuple[str, ...]:
    """A converter to several whole numbers or shares, separated by commas."""
    parts = [Token(keyword=token.keyword, value=part.strip()) for token in tokens for part in token.value.split(",")]
    return tuple(count_or_share(str, [part]) for part in parts)


def _read(hint: Any, token: Token) -> Any:
    from infoflow.foundation import UserError, example_setting, read_setting

    name = token.keyword or "The argument"
    try:
        return read_setting(hint, _plain(hint, token.value), name)
    except UserError as error:
        raise UserError(f"{error} Write for example {name} {example_setting(hint)}.") from None


def _plain(hint: Any, text: str) -> Any:
    """The text as a number if the type needs one and it is one; otherwise the text, which is refused later."""
    from infoflow.foundation import describe_setting

    if "number" not in describe_setting(hint):
        return text
    if re.fullmatch(r"[+-]?[0-9][0-9_]{0,400}", text):
        return int(text) if not text.endswith("_") and "__" not in text else text
    try:
        return float(text) if text.isascii() else text
    except ValueError:
        return text


def names_in(option: str, given: Sequence[str]) -> tuple[str, ...]:
    names = tuple(name.strip() for text in given for name in text.split(",") if name.strip())
    if given and not names:
        from infoflow.foundation import UserError

        raise UserError(f"{option} takes names separated by commas. Got {','.join(given)}. Leave it out for all.")
    return names


def numbers_in(option: str, given: Sequence[str], kind: type) -> tuple[Any, ...]:
    """Comma-separated numbers; the settings check their range."""
    try:
        names = names_in(option, given)
        if not all(name.isascii() for name in names):
            raise ValueError
        return tuple(kind(name) for name in names)
    except ValueError:
        from infoflow.foundation import UserError

        what = "whole numbers" if kind is int else "numbers"
        raise UserError(f"{option} takes {what} separated by commas. Got {','.join(given)[:80]}.") from None


def check_arguments(arguments: Sequence[str]) -> None:
    """Reject empty arguments and text that cannot be written: an empty path would mean the current folder."""
    for before, argument in zip(["", *arguments], arguments, strict=False):
        option = re.fullmatch(r"(--[\w-]+)=(.*)", argument, re.DOTALL)
        value = option[2] if option else argument
        wrong, advice = _fault(value)
        if wrong:
            from infoflow.foundation import UserError

            name = option[1] if option else before if before.startswith("--") else "An argument"
            raise UserError(f"{name} must {wrong}. {advice}")


_EXTRAS = {
    "explore": ("The live explorer", "starlette and uvicorn", ("starlette", "uvicorn"), "explore"),
    "--parse": ("Parsing a corpus", "spaCy", ("spacy",), "parse"),
    ".gguf": ("Reading a .gguf file", "gguf", ("gguf",), "gguf"),
    "--quantize int8": ("--quantize int8", "torchao", ("torchao",), "torchao"),
}
"""By command, option (with its value) or suffix of a file: feature, packages, modules and extra."""


def check_extras(arguments: Sequence[str]) -> None:
    """Refuse a command at once if its extra is missing, not seconds later when torch has been imported."""
    single = [part for one in arguments for part in (one.split("=", 1) if one.startswith("--") else [one])]
    words = {arguments[0], *single[1:], *(Path(one).suffix for one in single[1:])}
    words |= {f"{option} {value}" for option, value in pairwise(single)}
    for name, (feature, packages, modules, extra) in _EXTRAS.items():
        if name in words and not words & {"--help", "-h"} and not all(map(find_spec, modules)):
            from infoflow.foundation import missing_extra

            raise missing_extra(feature, packages, extra)


def _fault(value: str) -> tuple[str, str]:
    """The requirement that an argument violates, and what to do; empty strings if none."""
    if not value.strip():
        return "not be empty", "Got an empty argument. Fill it in, or leave it out."
    if odd := re.search(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]", value):
        return (
            "hold no control characters",
            f"Got the character with code {ord(odd[0])}. Remove it, or rename the file.",
        )
    if re.search(r"[\ud800-\udfff]", value):
        return "be UTF-8 text", "Got bytes that are not UTF-8. Write it in UTF-8, or rename the file."
    return "", ""


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True, slots=True)
class Reading:
    """How a model reads texts: with which tokenizer, languages and prefix."""

    tokenizer: Annotated[
        str | None, Parameter(help="Folder or hub name of the tokenizer. Default: the one saved with the weights.")
    ] = None
    source_language: Annotated[
        str | None,
        Parameter(show_default=False, help="Language code of the texts, for multilingual models, such as fra_Latn."),
    ] = None
    target_language: Annotated[
        str | None, Parameter(show_default=False, help="Language code of a multilingual model's output.")
    ] = None
    prefix: Annotated[
        str | None,
        Parameter(show_default=False, help='Text prepended to each input, such as "translate English to German:".'),
    ] = None

    @property
    def marks(self) -> dict[str, str]:
        """Languages and prefix as keyword arguments of the library."""
        return {
            "source_language": self.source_language or "",
            "target_language": self.target_language or "",
            "prefix": self.prefix or "",
        }

    def load(self, model: str, device: str | None, name: str) -> "Model":
        """The model in a folder or on the hub, under the name that figures show."""
        from infoflow.models import load_model

        return replace(load_model(model, self.tokenizer, device or "auto", **self.marks), name=name)


_Config = TypeVar("_Config")


def with_settings(plan: "StudyPlan", settings: Sequence[str]) -> "StudyPlan":
    """The plan with `name=value` settings changed; values are written as in TOML, quotes may be left out."""
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
        raise UserError(
            f"--set of this command only changes settings of the {' and of '.join(sections)}. Got {foreign[0][:80]}.\n"
            "Write for example --set analysis.clusters=100."
        )
    return with_settings(StudyPlan(), settings)


def changed(config: _Config, section: str, settings: Sequence[str]) -> _Config:
    """The dataclass, with the settings in `section.name=value` changed."""
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
