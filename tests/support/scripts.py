"""Scripts of `experiments`, which are no package, as modules."""

import importlib.util
from pathlib import Path
from types import ModuleType


def script(path: Path) -> ModuleType:
    """What the file at `path` defines."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
