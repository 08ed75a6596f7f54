"""The commands and their names. Nothing here imports torch, so that every `--help` is instant."""

from cyclopts import App, Group

from ._analyze import analyze
from ._bert_score import bert_score
from ._compare import compare
from ._data import describe, get, list_all
from ._data_index import index
from ._doctor import doctor
from ._dynamics import dynamics
from ._explore import explore
from ._fill_in import fill_in
from ._findings import findings
from ._heads import heads
from ._merge import merge
from ._over_scale import over_scale
from ._over_training import over_training
from ._probe import probe
from ._prune import prune
from ._report import report
from ._study import study
from ._train import train
from ._tune import tune
from ._view import view
from ._worker import worker


def _version() -> str:
    from infoflow.foundation import version

    return f"infoflow {version('infoflow')}"


app = App(
    name="infoflow",
    help="How information flows through a Transformer: layers, heads, objectives, with error bars and controls.",
    help_epilogue="Start with `infoflow study`, or `infoflow analyze MODEL --corpus FILE`. "
    "To continue an interrupted command, run it again.",
    version=_version,
    version_flags=["--version"],
    suppress_keyboard_interrupt=False,  # `run` says how to continue
)
_experiments = Group("Train and measure", sort_key=1)
_results = Group("Results of a run", sort_key=2)
_surroundings = Group("Data and machine", sort_key=3)
_COMMANDS = {
    _experiments: (
        study,
        train,
        tune,
        analyze,
        compare,
        heads,
        probe,
        fill_in,
        bert_score,
        prune,
        over_training,
        view,
        explore,
    ),
    _results: (dynamics, findings, over_scale, report, merge),
    _surroundings: (doctor, worker),
}

for _group, _functions in _COMMANDS.items():
    for _position, _function in enumerate(_functions):
        app.command(_function, group=_group, sort_key=_position, help_epilogue="")

app.register_install_completion_command(
    group=_surroundings, sort_key=9, help="Install shell completion (bash, zsh, fish)."
)

_data = App(
    name="data", help="Built-in corpora, and what a corpus holds.", group=_surroundings, sort_key=-1, help_epilogue=""
)
_data.command(list_all, name="list", sort_key=0)
_data.command(get, sort_key=1)
_data.command(describe, sort_key=2)
_data.command(index, sort_key=3)
app.command(_data)
