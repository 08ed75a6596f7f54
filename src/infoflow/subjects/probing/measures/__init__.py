"""Probes: what each layer encodes, and how hard it is to extract."""

from infoflow.heads import HEAD_PROBE
from infoflow.heads import AttentionProbe as AttentionProbe
from infoflow.representations import USABLE_INFORMATION_MLP, usable_by_mlp
from infoflow.representations import Schedule as Schedule
from infoflow.representations import UsableInformationMLP as UsableInformationMLP
from infoflow.results import PROBE_SCORES

from ._batched import NO_ANSWER, LabelledRows, ProbeGrid, ProbeSettings, TrainedProbes
from ._batched import train_probes as train_probes
from ._bert_score import bert_baseline
from ._bert_score import bert_score as bert_score
from ._bert_score import greedy_match as greedy_match
from ._bert_score_measure import BERT_SCORE, BERT_SCORE_LAYERS, BERT_SCORE_PAIRS
from ._bert_score_measure import BertScoreByLayer as BertScoreByLayer
from ._bert_score_measure import bert_score_tables as bert_score_tables
from ._bert_score_measure import pearson_by_layer as pearson_by_layer
from ._blanks import common_objects
from ._codelength import DescriptionLength as DescriptionLength
from ._codelength_codes import VariationalTraining as VariationalTraining
from ._codelength_codes import online_codelength as online_codelength
from ._codelength_codes import variational_codelength as variational_codelength
from ._codelength_measure import PROBE_CODELENGTH
from ._codelength_measure import Codelength as Codelength
from ._depth_statistics import center_of_gravity as center_of_gravity
from ._depth_statistics import (
    contextual_headroom,
    depth_warnings,
    differential_scores,
    kl_from_uniform,
    kl_of_differences,
    mixing_entropy,
    negative_mass,
)
from ._depth_statistics import expected_layer as expected_layer
from ._edge_measure import PROBE_DEPTH, PROBE_MIXING
from ._edge_measure import EdgeDepth as EdgeDepth
from ._edge_measure import EdgeProbe as EdgeProbe
from ._edge_probe import EdgeSettings, Spans
from ._edge_probe import edge_probe as edge_probe
from ._facts import ClozeFact, Facts, Prompt, read_facts
from ._features import collect_features as collect_features
from ._fill_in import FILL_IN, FillInOptions
from ._fill_in import FillIn as FillIn
from ._fill_in import fill_in as fill_in
from ._layers import probe_layers
from ._minimal_pairs import ALL_PAIRS, MINIMAL_PAIRS
from ._minimal_pairs import MinimalPairs as MinimalPairs
from ._probe_measure import PROBE_EXAMPLES
from ._probe_measure import Probe as Probe
from ._probe_measure import ProbeExamples as ProbeExamples
from ._probe_scores import Selectivity, micro_f1
from ._probe_scores import selectivity as selectivity
from ._probed_task import ExampleTypes, control_arcs, control_heads, control_labels, example_types
from ._questions import Examples, Part, ProbeTask
from ._relation_answers import best_prompt, optimised_weights
from ._structural_measure import PROBE_TREES
from ._structural_measure import StructuralProbe as StructuralProbe
from ._structural_probe import (
    StructuralMaps,
    TreeSentence,
    depth_scores,
    distance_scores,
    random_maps,
    tree_distances,
    tree_sentence,
)
from ._structural_probe import structural_probe as structural_probe
from ._tasks import MINIMAL_PAIRS_TASK, MOST_CLASSES, build_task, check_task, load_task_corpus, tasks
from ._text_pairs import TextPairs as TextPairs
from ._text_pairs import read_text_pairs as read_text_pairs

OF_CHECKPOINTS = (PROBE_SCORES.name, MINIMAL_PAIRS.name)
"""Tables that can be computed at checkpoints, on request."""
