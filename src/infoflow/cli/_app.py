"""The commands and their names. Nothing here imports torch, so that every `--help` is instant."""

from cyclopts import App, Group

from infoflow.subjects.adaptation.command._tune import tune
from infoflow.subjects.allocation.command import dynamics
from infoflow.subjects.explorer.command import explore
from infoflow.subjects.over_scale.command import over_scale
from infoflow.subjects.over_training.command import over_training
from infoflow.subjects.pruning.command import prune
from infoflow.subjects.retrieval.command import index

from ._analyze import analyze
from ._bert_score import bert_score
from ._compare import compare
from ._data import describe, get, list_all
from ._doctor import doctor
from ._fill_in import fill_in
from ._findings import findings
from ._heads import heads
from ._merge import merge
from ._probe import probe
from ._report import report
from ._study import study
from ._train import train
from ._view import view
from ._worker import worker


def _version() -> str:
    from infoflow.foundation import version

    return f"infoflow {version('infoflow')}"


app = App(
    name="infoflow",
    help="How information flows through a Transformer: layers, heads, objectives, with error bars and controls.",
    help_epilogue="Start with `infoflow study`, or `infoflow analyze MODEL --corpus FILE`. "
    "An interrupted command continues when it is given again.",
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
    group=_surroundings, sort_key=9, help="Let the shell (bash, zsh, fish) complete commands and options."
)

_data = App(
    name="data", help="Built-in corpora, and what a corpus holds.", group=_surroundings, sort_key=-1, help_epilogue=""
)
_data.command(list_all, name="list", sort_key=0)
_data.command(get, sort_key=1)
_data.command(describe, sort_key=2)
_data.command(index, sort_key=3)
app.command(_data)
