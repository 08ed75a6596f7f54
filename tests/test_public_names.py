"""Tests ask for public names. Which files look inside, and why: these and no others."""

import ast
import re
from pathlib import Path

TESTS = Path(__file__).parent

INSIDE = {
    "adaptation": (
        "answer_match answer_places depths frozen_body generation label_by_layer layer_swaps one_progress scoring "
        "span_answers span_extraction span_rows task_pruning task_rows tasks text_metrics tuning_files tuning_heads"
    ),
    "alignment": "evaluate",
    "cli": "main options streams",
    "corpus": "conftest.py damage facts grammar package_index split tatoeba",
    "dynamics": "evaluation_set packing",
    "engine": "conftest.py cluster following graph joining local stage_lock",
    "evidence": (
        "sharp_reader.py attention_ranking evidence_ablation evidence_flow evidence_heads knowledge knowledge_lens "
        "other_readers"
    ),
    "explorer": "asking.py answers",
    "findings": (
        "frequency_bins learned objective_map published_values registry retrieval_claims scaling transplant_claim"
    ),
    "flow": "heartbeat symbols",
    "foundation": "platform provenance",
    "heads": "ablation context coreference forward_relevance headless_layers significance telling_sentences",
    "models": "bands fast_linear",
    "objectives": "bart spanbert text_to_text word_masking",
    "over_training": "checkpoint_names effective_rank translation_stages turning",
    "probing": (
        "attention_probe batched bert_score codelength depth_measures greedy_match probe_examples probe_scores "
        "prompt_ensembles structural_probe tasks"
    ),
    "pruning": "prune_to",
    "report": "drawn.py datasets engine layer_chart numbers packed_figures path_data samples",
    "representations": (
        "block_similarity discretize distinct_points entropy frequency influence information_measure lens_measure "
        "token_map token_pools token_products views within_tokens"
    ),
    "retrieval": "answer_windows",
    "studies": (
        "gpu_shares over_training reading_start retrieval_stages retrieval_text study_tasks term_scores word_loss"
    ),
    "training": "precision text_rows",
}
"""A second implementation, a published value or a property is of one inner step; a helper of the folder's tests."""

CHANGED = {
    "adaptation": "inside_view",
    "alignment": "csls explicit implicit retrieval",
    "corpus": "store",
    "foundation": "allocator display hub memory",
    "heads": "voita_relevance",
    "over_training": "loss_measures series_checks source_contribution",
    "probing": "probe",
    "representations": "neighbour_agreement tuned_lens",
    "retrieval": "search",
    "studies": "checkpoints graph refused study_progress",
}
"""An inner step is made to fail, to be counted, to stop early or to work in small pieces."""


def test_no_other_file_looks_inside():
    listed = [*_named(INSIDE), *_named(CHANGED)]
    found = {path.relative_to(TESTS).as_posix() for path in TESTS.rglob("*.py") if _looks_inside(path)}
    assert len(listed) == len(set(listed))
    assert found - {*listed} == set(), "import public names, or say in this list why the inside is needed"
    assert {*listed} - found == set(), "these import public names alone now: take them off the list"


def _named(files: dict[str, str]) -> list[str]:
    return [
        f"{room}/{name if name.endswith('.py') else f'test_{name}.py'}"
        for room, names in files.items()
        for name in names.split()
    ]


def _looks_inside(path: Path) -> bool:
    """Whether a file imports a private name; those in texts of programs do not count."""
    names = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and not node.level:
            names += [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
    return any(re.match(r"infoflow\..*\b_(?!_)|infoflow\._(?!_)", name) for name in names)
