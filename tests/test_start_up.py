"""What starting costs: libraries that only models need are not imported by drawing or by help."""

import json
import subprocess
import sys

import pytest
from support.plain import run_plain

_SLOW = (
    "transformers",
    "datasets",
    "accelerate",
    "sklearn",
    "scipy.optimize",
    "torch._dynamo",
    "torch.distributed.tensor",
)


def _loaded(code: str) -> set[str]:
    """Modules of a fresh process after it ran `code`."""
    report = f"{code}\nimport json, sys\nprint(json.dumps(sorted(sys.modules)))"
    run = subprocess.run([sys.executable, "-c", report], capture_output=True, text=True, check=True)
    return set(json.loads(run.stdout.splitlines()[-1]))


def test_the_report_is_imported_without_the_libraries_of_models():
    loaded = _loaded("import infoflow.report")
    assert "infoflow.heads" in loaded
    assert loaded.isdisjoint(_SLOW)


@pytest.mark.parametrize("command", [["--help"], ["heads", "--help"]])
def test_help_is_shown_without_torch(command):
    loaded = _loaded(
        f"import sys; sys.argv = ['infoflow', *{command}]\nfrom infoflow.__main__ import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass"
    )
    assert loaded.isdisjoint((*_SLOW, "torch", "pandas"))


def test_a_class_that_is_imported_later_is_the_real_one(tmp_path):
    """Instances, calls and attributes of a stand-in are those of the class it stands for."""
    run_plain(
        "import transformers\nfrom infoflow._transformers import BertConfig, PreTrainedModel\n"
        "made = BertConfig(hidden_size=8, num_attention_heads=2)\n"
        "assert type(made) is transformers.BertConfig and isinstance(made, BertConfig)\n"
        "assert BertConfig.model_type == 'bert'\n"
        "assert issubclass(transformers.BertModel, PreTrainedModel)\n"
        "assert not issubclass(transformers.BertConfig, PreTrainedModel)",
        tmp_path,
    )


def test_own_models_load_through_transformers_after_their_module_is_imported(tmp_path):
    code = (
        "import torch\nfrom infoflow.models.modeling_own import ElmoConfig\nfrom transformers import AutoModel\n"
        "config = ElmoConfig(vocab_size=9, hidden_size=8, cell_size=12)\n"
        f"AutoModel.from_config(config).save_pretrained({str(tmp_path)!r})\n"
        f"assert type(AutoModel.from_pretrained({str(tmp_path)!r})).__name__ == 'Elmo'\n"
        "import sys\nassert 'infoflow.models' in sys.modules"
    )
    run_plain(code, tmp_path)
