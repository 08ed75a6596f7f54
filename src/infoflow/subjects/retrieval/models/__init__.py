"""Retrieval: passages and indexes, retrievers, and the likelihood marginalised over passages."""

from infoflow.objectives import (
    contains_answer,
    exact_match,
    memorisation_ratio,
    normalise_answer,
    stored_bits,
    token_f1,
)
from infoflow.results import QUERY_LEAKAGE, RETRIEVAL_LEARNING, RETRIEVAL_SCORES

from ._approximate import HNSW as HNSW
from ._approximate import IVFPQ as IVFPQ
from ._benchmarks import Benchmark as Benchmark
from ._benchmarks import facts_benchmark, load_questions
from ._benchmarks import load_benchmark as load_benchmark
from ._bm25 import LexicalIndex as LexicalIndex
from ._bm25 import bm25_scores as bm25_scores
from ._bm25 import require_lexical
from ._build_passage_index import build_passage_index
from ._candidates import NULL, candidates
from ._decoding import (
    SearchLimits,
    rag_sequence_answer,
    rag_token_answer,
    reader_with_passages,
    rescore_hypotheses,
    sequence_log_likelihoods,
)
from ._dense_index import DenseIndex as DenseIndex
from ._evidence_entry import evidence_entry
from ._fixed_choice import fixed_choice
from ._found import Found as Found
from ._found import Searches as Searches
from ._group_index import GroupIndex as GroupIndex
from ._in_batch import in_batch_loss
from ._index_folder import load_index, save_index
from ._library import Library as Library
from ._library import overlap, vectors_digest
from ._marginal import document_posterior, marginal_log_likelihood, retrieval_utility
from ._origins import origins
from ._passage_index import PassageIndex as PassageIndex
from ._passage_index import open_passage_index as open_passage_index
from ._passage_index import open_shard as open_shard
from ._passages import Passages as Passages
from ._passages import Shard as Shard
from ._query_leakage import QueryLeakage as QueryLeakage
from ._query_leakage import leakage_scores as leakage_scores
from ._query_leakage import query_leakage as query_leakage
from ._ranking import hit_at, recall_at
from ._ranking import reciprocal_rank as reciprocal_rank
from ._reader import Candidates
from ._reader import RetrievalModel as RetrievalModel
from ._reading import num_positions
from ._retrieval_anatomy import retrieval_anatomy
from ._retriever import Retriever as Retriever
from ._retriever import RetrieverConfig as RetrieverConfig
from ._retriever import Tower as Tower
from ._retriever import build_retriever as build_retriever
from ._retriever import retriever_config as retriever_config
from ._retriever import tower_copy
from ._salient import salient_spans
from ._scores import answer_scores, collapse, question_blocks
from ._scores import retrieval_scores as retrieval_scores
from ._search_recall import search_recall
from ._sharded_index import ShardedIndex
from ._term_statistics import TermStatistics as TermStatistics
from ._terms import terms_name
from ._terms import terms_of as terms_of
from ._tower_digest import tower_digest
from ._trec import check_run_file
from ._trec import read_qrels as read_qrels
from ._trec import read_run as read_run
from ._trec import write_qrels as write_qrels
from ._trec import write_run as write_run
