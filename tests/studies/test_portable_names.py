"""Names that a run writes are names on Windows and macOS too."""

import re
from collections import Counter

import pytest

pytestmark = pytest.mark.slow

_RESERVED = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\..*)?", re.IGNORECASE)
_FORBIDDEN = re.compile(r'[<>:"|?*\\\x00-\x1f]|[. ]$')
_LONGEST = 110  # characters below the run folder; a name that is being written has thirty more


def test_a_run_folder_can_be_written_and_copied_everywhere(tiny_run):
    names = [path.relative_to(tiny_run.path) for path in tiny_run.path.rglob("*")]
    assert [name for name in names if any(map(_RESERVED.fullmatch, name.parts))] == []
    assert [name for name in names if any(map(_FORBIDDEN.search, name.parts))] == []
    assert [name for name, count in Counter(str(name).casefold() for name in names).items() if count > 1] == []
    assert max(len(str(name)) for name in names) <= _LONGEST
