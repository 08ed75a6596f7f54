"""Retrieval: passages and indexes, retrievers, and the likelihood marginalised over passages."""

from infoflow.models import contains_answer, exact_match, memorisation_ratio, normalise_answer, stored_bits, token_f1
from infoflow.results import QUERY_LEAKAGE, RETRIEVAL_LEARNING, RETRIEVAL_SCORES

from ._benchmarks import Benchmark, facts_benchmark
from ._benchmarks import load_benchmark as load_benchmark
from ._bm25 import WORD_TERMS, TermStatistics, require_lexical
from ._bm25 import LexicalIndex as LexicalIndex
from ._bm25 import bm25_scores as bm25_scores
from ._bm25 import terms_of as terms_of
from ._decoding import (
    SearchLimits,
    rag_sequence_answer,
    rag_token_answer,
    reader_with_passages,
    rescore_hypotheses,
    sequence_log_likelihoods,
)
from ._dense_index import HNSW as HNSW
from ._dense_index import IVFPQ as IVFPQ
from ._dense_index import DenseIndex as DenseIndex
from ._found import Found as Found
from ._found import Searches as Searches
from ._found import check_run_file, hit_at, recall_at
from ._found import read_qrels as read_qrels
from ._found import read_run as read_run
from ._found import reciprocal_rank as reciprocal_rank
from ._found import write_qrels as write_qrels
from ._found import write_run as write_run
from ._index_folder import GroupIndex as GroupIndex
from ._index_folder import ShardedIndex, load_index, save_index, search_recall, tower_digest
from ._library import NULL, candidates, overlap, vectors_digest
from ._library import Library as Library
from ._passage_index import PassageIndex as PassageIndex
from ._passage_index import build_passage_index
from ._passage_index import open_passage_index as open_passage_index
from ._passage_index import open_shard as open_shard
from ._passages import Passages as Passages
from ._passages import Shard as Shard
from ._reader import Candidates
from ._reader import RetrievalModel as RetrievalModel
from ._reading import document_posterior, marginal_log_likelihood, num_positions
from ._retrieval_anatomy import evidence_entry, fixed_choice, retrieval_anatomy, source_scores
from ._retriever import Retriever as Retriever
from ._retriever import RetrieverConfig as RetrieverConfig
from ._retriever import Tower, in_batch_loss, salient_spans, tower_copy
from ._retriever import build_retriever as build_retriever
from ._retriever import retriever_config as retriever_config
from ._scores import QueryLeakage, answer_scores, block_mean, collapse, origins, question_blocks, score_row
from ._scores import leakage_scores as leakage_scores
from ._scores import query_leakage as query_leakage
from ._scores import retrieval_scores as retrieval_scores
