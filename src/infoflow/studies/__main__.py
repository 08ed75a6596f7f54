"""One job of a study in a process of its own: `python -m infoflow.studies RUN_FOLDER JOB` (started by a study)."""

import json
import sys

from infoflow.foundation import UserError, make_display, set_threads, use_display
from infoflow.results import RunFolder
from infoflow.studies._jobs import Job, StudyJobs
from infoflow.studies._orphan import end_with_parent
from infoflow.studies._plan import StudyPlan


def main(folder: str, job: str) -> int:
    """Do the job; events go to standard error as JSON lines."""
    end_with_parent()
    set_threads()
    with use_display(make_display("json")):
        try:
            run = RunFolder.existing(folder)
            StudyJobs(StudyPlan.from_json(run.read()["plan"]), run).do(Job.parse(job))
        except (UserError, OSError, MemoryError) as error:  # the last two: a full disk, no permission, no memory
            text = str(error) or f"{type(error).__name__}: the machine has too little memory for this job."
            print(json.dumps({"event": "error", "text": text}), file=sys.stderr, flush=True)
            return 2
        except KeyboardInterrupt:
            return 130
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
