"""The commands and their names. Nothing here imports torch, so that every `--help` is instant."""

from collections.abc import Callable
from importlib import import_module

from cyclopts import App, Group

from infoflow._subjects import parts

from ._analyze import analyze, compare, merge
from ._data import describe, get, list_all, show_example
from ._doctor import doctor
from ._fill_in import fill_in
from ._findings import findings, report
from ._heads import heads, view
from ._probe import bert_score, probe
from ._study import study, train, worker


def _version() -> str:
    from infoflow.foundation import version

    return f"infoflow {version('infoflow')}"


EXPERIMENTS, RESULTS, SURROUNDINGS = "Train and measure", "Results of a run", "Data and machine"

app = App(
    name="infoflow",
    help="How information flows through a Transformer: layers, heads, objectives, with error bars and controls.",
    help_epilogue="Start with `infoflow study`, or `infoflow analyze MODEL --corpus FILE`. "
    "To continue an interrupted command, run it again.",
    version=_version,
    version_flags=["--version"],
    suppress_keyboard_interrupt=False,  # `run` says how to continue
)
_GROUPS = {name: Group(name, sort_key=key) for key, name in enumerate((EXPERIMENTS, RESULTS, SURROUNDINGS), 1)}
_COMMANDS: dict[str, dict[int, Callable[..., object]]] = {
    EXPERIMENTS: {
        0: study,
        1: train,
        3: analyze,
        4: compare,
        5: heads,
        6: probe,
        7: fill_in,
        8: bert_score,
        11: view,
    },
    RESULTS: {1: findings, 3: report, 4: merge},
    SURROUNDINGS: {0: doctor, 1: worker},
}

for _group, _functions in _COMMANDS.items():
    for _position, _function in _functions.items():
        app.command(_function, group=_GROUPS[_group], sort_key=_position, help_epilogue="")

app.register_install_completion_command(
    group=_GROUPS[SURROUNDINGS], sort_key=9, help="Install shell completion (bash, zsh, fish)."
)

_data = App(
    name="data",
    help="Built-in corpora, what a corpus holds, and what an objective makes of a text.",
    group=_GROUPS[SURROUNDINGS],
    sort_key=-1,
    help_epilogue="",
)
_data.command(list_all, name="list", sort_key=0)
_data.command(get, sort_key=1)
_data.command(describe, sort_key=2)
_data.command(show_example, name="show", sort_key=4)
app.command(_data)

for _subject in parts(""):
    for _command, (_group, _position) in getattr(_subject, "COMMANDS", {}).items():
        *_above, _name = _command.split()
        _function = getattr(import_module(f"{_subject.__name__}.command"), _name)
        _parent = _data if _above else app
        _parent.command(_function, group=None if _above else _GROUPS[_group], sort_key=_position, help_epilogue="")
