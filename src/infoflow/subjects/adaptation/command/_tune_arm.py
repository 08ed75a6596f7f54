"""What `infoflow tune` tunes: the model that was asked for, and what it is compared with."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from infoflow.models import Model
    from infoflow.objectives import AbstractObjective
    from infoflow.results import Subject

    from ..measures import AbstractTask, AllocationHooks, TaskData, TuneConfig, Tuned

_SHUFFLED, _UNTRAINED = "shuffled labels", "untrained"


@dataclass(frozen=True, kw_only=True, eq=False)
class Arm:
    """One model tuned for a task in one way."""

    label: str
    """What it is beside the model that was asked for; "": that model itself."""
    subject: "Subject"
    """What tables call the model: the untrained one, as in a study, by the name of the trained one."""
    model: "Model"
    """Before tuning."""
    pretrained_for: "AbstractObjective | None"
    """Where that is known."""
    data: "TaskData"
    task: "AbstractTask"
    config: "TuneConfig"
    run: Path
    """The run folder."""

    @property
    def recordings(self) -> Path:
        """Where recordings of its tuning are kept."""
        return self.run / "allocation" / self._home / self.data.name / self.config.way

    @property
    def features(self) -> Path:
        """Where what frozen bodies compute of texts is kept until all arms are tuned."""
        return self.run / "features"

    def tuned(self, hooks: "AllocationHooks | None" = None) -> "Tuned":
        """It with all seeds, from its folder or from training."""
        from ..measures import tune

        folder = self.run / self._home
        return tune(self.model, self.data, self.config, folder, task=self.task, hooks=hooks, features=self.features)

    def check(self) -> None:
        """Refuse, before anything is tuned, to write into another's folder.

        Raises:
            UserError: One lies where the tuned models go.
        """
        from infoflow.foundation import UserError, check_own_folder

        check_own_folder(self.run / self._home / self.task.task / self.config.way, "tuning.json", "A tuned model")
        files = (one for one in self.features.rglob("*") if not one.is_dir())
        if others := [one.name for one in files if one.suffix not in (".numbers", ".index")]:
            raise UserError(
                f"{self.features} would be removed, but infoflow did not write {others[0]} there. Move it, or choose "
                "another --out."
            )

    @property
    def _home(self) -> str:
        return "models" if self.subject.trained else _UNTRAINED


def arms(asked: Arm, *, controls: bool, from_scratch: bool) -> list[Arm]:
    """What is tuned: an arm; on labels that changed places; and the same architecture with random weights."""
    from infoflow.studies import untrained

    found = [asked]
    if controls:
        found.append(replace(asked, label=_SHUFFLED, config=replace(asked.config, control="shuffled-labels")))
    if controls or from_scratch:
        subject = asked.subject.before_training()
        fresh = replace(untrained(asked.model, seed=0), name=subject.label)
        found.append(replace(asked, label=_UNTRAINED, subject=subject, model=fresh))
    return found
