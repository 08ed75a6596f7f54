"""infoflow: how information flows through a Transformer."""

import os
import warnings
from typing import TYPE_CHECKING

# Before transformers is imported: compiled kernels that it would fetch from a hub and run are never loaded.
os.environ["USE_HUB_KERNELS"] = "NO"
# In a notebook without widgets, tqdm warns when transformers imports it; progress is shown without widgets here.
warnings.filterwarnings("ignore", message="IProgress not found")

if TYPE_CHECKING:  # what the lazy names below stand for, for editors and type checkers
    from . import alignment as alignment
    from . import dynamics as dynamics
    from . import heads as heads
    from . import objectives as objectives
    from . import probing as probing
    from . import pruning as pruning
    from . import representations as representations
    from .corpus import Corpus as Corpus
    from .corpus import load_corpus as load_corpus
    from .flow import Measure as Measure
    from .flow import compare as compare
    from .flow import measure as measure
    from .flow import measure_of as measure_of
    from .foundation import UserError as UserError
    from .foundation import set_display as set_display
    from .models import load_model as load_model
    from .report import plot as plot
    from .report import view as view
    from .report import write_report as write_report
    from .studies import Run as Run
    from .studies import StudyPlan as StudyPlan
    from .studies import analyze as analyze
    from .studies import check_findings as check_findings
    from .studies import merge as merge
    from .studies import study as study
    from .studies import train_model as train
    from .subjects.adaptation.measures import tune as tune
    from .subjects.explorer.server import explore as explore
    from .subjects.over_scale.stages import over_scale as over_scale
    from .subjects.probing.stages import probe as probe
    from .subjects.pruning.stages import prune as prune

_HOMES = {
    "Corpus": "corpus",
    "load_corpus": "corpus",
    "Measure": "flow",
    "measure": "flow",
    "measure_of": "flow",
    "compare": "flow",
    "UserError": "foundation",
    "set_display": "foundation",
    "explore": "subjects.explorer.server",
    "plot": "report",
    "view": "report",
    "load_model": "models",
    "write_report": "report",
    "Run": "studies",
    "StudyPlan": "studies",
    "analyze": "studies",
    "check_findings": "studies",
    "merge": "studies",
    "over_scale": "subjects.over_scale.stages",
    "probe": "subjects.probing.stages",
    "prune": "subjects.pruning.stages",
    "study": "studies",
    "train": "studies",
    "tune": "subjects.adaptation.measures",
}
_NAMES = {"train": "train_model"}  # in their rooms
_ROOMS = (
    "alignment", "dynamics", "heads", "objectives", "over_training", "probing", "pruning", "representations", "models",
    "architectures", "training", "adaptation", "findings", "report", "explorer", "studies", "retrieval", "evidence",
)  # fmt: skip

__all__ = sorted([*_HOMES, "alignment", "dynamics", "heads", "objectives", "probing", "pruning", "representations"])


def __getattr__(name: str):
    """Import a subpackage when its name is first used, so that `infoflow --help` never loads torch."""
    import importlib

    if name in _ROOMS:
        return importlib.import_module(f".{name}", __name__)
    if name in _HOMES:
        return getattr(importlib.import_module(f".{_HOMES[name]}", __name__), _NAMES.get(name, name))
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
