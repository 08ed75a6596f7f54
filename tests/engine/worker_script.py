"""A worker as `infoflow worker RUN` is: RUN JOBS PATIENCE, and the exit code."""

import sys
from pathlib import Path

from infoflow.engine import worker
from infoflow.foundation import UserError, make_display, use_display

sys.path.insert(0, str(Path(__file__).parent))  # the stages of tests

if __name__ == "__main__":
    with use_display(make_display("plain")):
        try:
            sys.exit(worker(sys.argv[1], jobs=int(sys.argv[2]), patience=sys.argv[3]))
        except UserError as error:
            print(error, file=sys.stderr)
            sys.exit(2)
