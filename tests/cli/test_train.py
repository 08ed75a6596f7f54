"""`train`."""

import json

import pytest
from transformers import AutoModelForMaskedLM

pytestmark = pytest.mark.slow


def test_train_leaves_a_plain_hugging_face_folder_and_a_study_takes_it_over(
    infoflow, plan, finished, no_drawing, tmp_path
):
    answer = infoflow("train", "masked-lm", "--plan", plan, "--out=run", "--log=plain")
    assert answer.code == 0, answer.err
    folder = tmp_path / "run" / "models" / "masked-lm" / "seed-0"
    assert answer.out.splitlines()[-1] == "Model: run/models/masked-lm/seed-0"
    assert AutoModelForMaskedLM.from_pretrained(folder).config.hidden_size == 16
    same = finished / "models" / "masked-lm" / "seed-0" / "model.safetensors"
    assert (folder / "model.safetensors").read_bytes() == same.read_bytes()

    (log,) = (tmp_path / "run" / "work" / "training").glob("*/log.jsonl")
    before = log.stat().st_mtime_ns
    study = infoflow("study", plan, "--out=run", "--processes=1", "--log=plain")
    assert study.code == 0, study.err
    assert log.stat().st_mtime_ns == before
    assert len(list((tmp_path / "run" / "work" / "training").glob("*/log.jsonl"))) == 2  # the causal LM's
    assert (folder / "model.safetensors").read_bytes() == same.read_bytes()


def test_train_on_another_corpus_with_another_seed(infoflow, plan, tmp_path):
    (tmp_path / "own.txt").write_text(
        "".join(f"the {colour} cat sleeps on {n} mats\n" for n in range(40) for colour in ("red", "big"))
    )
    answer = infoflow(
        "train", "causal-lm", f"--plan={plan}", "--corpus=own.txt", "--seed=5", "--set=training.updates=2"
    )
    assert answer.code == 0, answer.err
    assert answer.out.splitlines()[-1] == "Model: runs/causal-lm/models/causal-lm/seed-5"
    written = json.loads((tmp_path / "runs/causal-lm/run.json").read_text())["plan"]
    assert written["corpus"]["name"] == "own.txt"
    assert written["seeds"] == [5]


def test_a_student_has_its_teacher_trained_first(infoflow, plan, tmp_path):
    answer = infoflow("train", "distillation", f"--plan={plan}", "--set=training.updates=2")
    assert answer.code == 0, answer.err
    models = tmp_path / "runs" / "distillation" / "models"
    assert answer.out.splitlines()[-1] == "Model: runs/distillation/models/distillation/seed-0"
    assert {path.name for path in models.iterdir()} == {"masked-lm", "distillation"}


def test_checkpoints_are_kept_by_a_schedule(infoflow, plan, finished, no_drawing, tmp_path):
    answer = infoflow("train", "masked-lm", f"--plan={plan}", "--checkpoints=linear:2", "--out=run", "--log=plain")
    assert answer.code == 0, answer.err
    (folder,) = (tmp_path / "run" / "work" / "training").glob("*/snapshots")
    assert answer.out.splitlines()[-1] == f"Checkpoints: {folder.relative_to(tmp_path)}"
    kept = sorted(path.name for path in folder.glob("step-*"))
    assert len(kept) >= 3
    assert AutoModelForMaskedLM.from_pretrained(folder / kept[1]).config.hidden_size == 16
    final = finished / "models" / "masked-lm" / "seed-0" / "model.safetensors"
    assert (folder / kept[-1] / "model.safetensors").read_bytes() == final.read_bytes()


def test_a_bad_schedule_is_refused_before_anything_is_done(infoflow, plan, tmp_path):
    answer = infoflow("train", "masked-lm", f"--plan={plan}", "--checkpoints=log:0", "--out=run")
    assert answer.code == 2
    assert answer.err.startswith("checkpoints.schedule must be log:K")
    assert not (tmp_path / "run").exists()


def test_a_model_is_trained_on_and_what_does_not_go_together_is_refused(infoflow, plan, finished, tmp_path):
    model = finished / "models" / "masked-lm" / "seed-0"
    answer = infoflow(
        *(
            "train",
            "masked-lm",
            f"--plan={plan}",
            f"--start={model}",
            "--extend-vocabulary=7",
            "--out=on",
            "--log=plain",
        )
    )
    assert answer.code == 0, answer.err
    assert answer.out.splitlines()[-1] == "Model: on/model"
    before, after = (AutoModelForMaskedLM.from_pretrained(folder) for folder in (model, tmp_path / "on" / "model"))
    assert after.config.vocab_size == before.config.vocab_size + 7
    assert "7 tokens were learned on" in answer.err

    alone = infoflow("train", "masked-lm", f"--plan={plan}", "--extend-vocabulary=7", "--out=alone")
    assert alone.code == 2
    assert "--extend-vocabulary adds tokens to an existing model" in alone.err
    kept = infoflow("train", "masked-lm", f"--plan={plan}", f"--start={model}", "--checkpoints=log:2", "--out=alone")
    assert kept.code == 2
    assert "--checkpoints only applies to new models" in kept.err
    unfit = infoflow("train", "causal-lm", f"--plan={plan}", f"--start={model}", "--out=alone")
    assert unfit.code == 2
    assert "causal-lm trains a decoder with a language-model head" in unfit.err
    assert not (tmp_path / "alone").exists()
