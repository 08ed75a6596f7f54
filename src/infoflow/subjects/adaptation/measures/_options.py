"""Checks the options of a task against their annotations."""

import dataclasses
from typing import Any, get_type_hints

from infoflow.foundation import read_setting


def check_options(task: Any) -> None:
    """
    Raises:
        UserError: An option of the task, a frozen dataclass, is out of range.
    """
    hints = get_type_hints(type(task), include_extras=True)
    for field in dataclasses.fields(task):
        default = None if field.default is dataclasses.MISSING else field.default
        read_setting(hints[field.name], getattr(task, field.name), f"{task.name}.{field.name}", default)
