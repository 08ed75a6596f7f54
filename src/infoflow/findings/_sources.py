"""The papers behind the claims, and how much of each was read."""

from typing import Literal

SourceRead = Literal["whole", "numbers only", "abstract", "second hand"]
"""How much of a source was read.

In order: its text; only its figures, tables, published code or data; only its abstract; or nothing but reports by
others, on slides or from memory.
"""


class Source(str):
    """Where a claim was published.

    A claim whose source was not read, or says less, is marked as ours.
    """

    read: SourceRead

    def __new__(cls, work: str, read: SourceRead, *, ours: bool = False) -> "Source":
        source = super().__new__(cls, f"infoflow: ours, after {work}" if ours or read == "second hand" else work)
        source.read = read
        return source

    @property
    def beyond(self) -> "Source":
        """This source for a claim of ours that goes beyond it."""
        return Source(self, self.read, ours=True)


OURS = "infoflow: ours, exploratory"
BOTTOM_UP = Source(
    "Voita, Sennrich and Titov 2019, The Bottom-up Evolution of Representations in the Transformer, EMNLP-"
    "IJCNLP (numbers read off its figures)",
    "numbers only",
)
HEAVY_LIFTING = Source(
    "Voita, Talbot, Moiseev, Sennrich and Titov 2019, Analyzing Multi-Head Self-Attention: Specialized Heads "
    "Do the Heavy Lifting, the Rest Can Be Pruned, ACL",
    "numbers only",
)
LESSONS = Source(
    "Zhang and Bowman 2018, Language Modeling Teaches You More than Translation Does: Lessons Learned Through"
    " Auxiliary Syntactic Task Analysis, BlackboxNLP",
    "abstract",
)
LESSONS_ON_WORDS = Source(
    "Zhang and Bowman 2018, Language Modeling Teaches You More than Translation Does: Lessons Learned Through"
    " Auxiliary Syntactic Task Analysis, BlackboxNLP (word identity: from memory)",
    "abstract",
    ours=True,
)
GEOMETRY = Source(
    "Ethayarajh 2019, How Contextual are Contextualized Word Representations?, EMNLP-IJCNLP (numbers of its "
    "published code)",
    "numbers only",
)
ENCODER_SPACES = Source(
    "Vázquez, Celikkanat, Creutz and Tiedemann 2021, On the differences between BERT and MT encoder spaces "
    "and how to address them in translation tasks, ACL-IJCNLP Student Research Workshop",
    "second hand",
)
CLARK = Source(
    "Clark, Khandelwal, Levy and Manning 2019, What Does BERT Look At? An Analysis of BERT's Attention, BlackboxNLP",
    "numbers only",
)
SIXTEEN_HEADS = Source(
    "Michel, Levy and Neubig 2019, Are Sixteen Heads Really Better than One?, NeurIPS (numbers as others "
    "summarise its tables)",
    "abstract",
)
HEADS_OVER_TASKS = Source(
    "Michel, Levy and Neubig 2019, Are Sixteen Heads Really Better than One?, NeurIPS (numbers as others "
    "summarise its tables), where domains of one task are compared",
    "abstract",
    ours=True,
)
LOSS_CHANGE = Source(
    "Lan, Liu, Zhou and Yosinski 2019, LCA: Loss Change Allocation for Neural Network Training, NeurIPS (and "
    "its published code)",
    "abstract",
)
LOSS_CHANGE_RECALLED = Source(
    "Lan, Liu, Zhou and Yosinski 2019, LCA: Loss Change Allocation for Neural Network Training, NeurIPS", "second hand"
)
PARAMETER_CONTRIBUTIONS = Source(
    "Vázquez, Celikkanat, Ravishankar, Creutz and Tiedemann 2022, A Closer Look at Parameter Contributions "
    "When Training Neural Language and Translation Models, COLING",
    "abstract",
)
CONTRIBUTIONS_ON_SLIDES = Source(
    "Vázquez, Celikkanat, Ravishankar, Creutz and Tiedemann 2022, A Closer Look at Parameter Contributions When "
    "Training Neural Language and Translation Models, COLING (as reported on the project's slides)",
    "second hand",
)
TRANSLATION_DYNAMICS = Source(
    "Zhu, Li, Liu, Zhao and Shi 2020, Understanding Learning Dynamics for Neural Machine Translation, arXiv 2004.02199",
    "abstract",
)
COMPARISON = Source(
    "Li, Ji, Mickus, Segonne and Tiedemann 2024, A Comparison of Language Modeling and Translation as "
    "Multilingual Pretraining Objectives, EMNLP (where architectures are stacks, not families of blocks)",
    "abstract",
    ours=True,
)
ELECTRA_PAPER = Source(
    "Clark, Luong, Le and Manning 2020, ELECTRA: Pre-training Text Encoders as Discriminators Rather Than "
    "Generators, ICLR",
    "abstract",
)
BART_PAPER = Source(
    "Lewis et al. 2020, BART: Denoising Sequence-to-Sequence Pre-training for Natural Language Generation, "
    "Translation, and Comprehension, ACL",
    "abstract",
)
ROBERTA = Source(
    "Liu et al. 2019, RoBERTa: A Robustly Optimized BERT Pretraining Approach, arXiv 1907.11692", "second hand"
)
ALBERT_PAPER = Source(
    "Lan, Chen, Goodman, Gimpel, Sharma and Soricut 2020, ALBERT: A Lite BERT for Self-supervised Learning of"
    " Language Representations, ICLR (which does not name next-sentence prediction)",
    "abstract",
    ours=True,
)
SPANBERT_PAPER = Source(
    "Joshi, Chen, Liu, Weld, Zettlemoyer and Levy 2020, SpanBERT: Improving Pre-training by Representing and "
    "Predicting Spans, TACL (the README of its code)",
    "numbers only",
)
T5_PAPER = Source(
    "Raffel et al. 2020, Exploring the Limits of Transfer Learning with a Unified Text-to-Text Transformer, JMLR",
    "second hand",
)
DISTILBERT = Source(
    "Sanh, Debut, Chaumond and Wolf 2019, DistilBERT, a distilled version of BERT: smaller, faster, cheaper "
    "and lighter, arXiv 1910.01108 (the README of its code)",
    "numbers only",
)
SVCCA_PAPER = Source(
    "Raghu, Gilmer, Yosinski and Sohl-Dickstein 2017, SVCCA: Singular Vector Canonical Correlation Analysis "
    "for Deep Learning Dynamics and Interpretability, NeurIPS (images)",
    "second hand",
)
CONVERGENCE_DYNAMICS = Source(
    "Diehl Martinez, Lesci and Buttery 2024, Tending Towards Stability: Convergence Challenges in Small "
    "Language Models, Findings of EMNLP",
    "abstract",
)
CIRCUITS_OVER_TRAINING = Source(
    "Tigges, Hanna, Yu and Biderman 2024, LLM Circuit Analyses Are Consistent Across Training and Scale, NeurIPS",
    "abstract",
)
SIMILARITY = Source(
    "Kornblith, Norouzi, Lee and Hinton 2019, Similarity of Neural Network Representations Revisited, ICML",
    "second hand",
)
INDUCTION = Source("Olsson et al. 2022, In-context Learning and Induction Heads, Transformer Circuits Thread", "whole")
CHARACTERISTICS = Source(
    "Chang, Tu and Bergen 2024, Characterizing Learning Curves During Language Model Pre-Training: Learning, "
    "Forgetting, and Stability, TACL",
    "numbers only",
)
SAPHRA_AND_OURS = Source(
    "Saphra and Lopez 2019, Understanding Learning Dynamics of Language Models with SVCCA, NAACL (that "
    "dependencies and coreference follow is not in it)",
    "abstract",
    ours=True,
)
SUDDEN_DROPS = Source(
    "Chen, Shwartz-Ziv, Cho, Leavitt and Saphra 2024, Sudden Drops in the Loss: Syntax Acquisition, Phase "
    "Transitions, and Simplicity Bias in MLMs, ICLR",
    "abstract",
)
RAZZHIGAEV = Source(
    "Razzhigaev et al. 2024, The Shape of Learning: Anisotropy and Intrinsic Dimensions in Transformer-Based "
    "Models, Findings of EACL",
    "second hand",
)
FOUR_PHASES = Source(
    "Fehlauer, Mahowald and Pimentel 2025, Convergence and Divergence of Language Models under Different "
    "Random Seeds, EMNLP",
    "abstract",
)
NGRAM_STAGES = Source(
    "Chang and Bergen 2022 and Belrose et al. 2024 on n-grams early in training; the stages of Pythia models "
    "by their published data",
    "numbers only",
)
BLEVINS = Source(
    "Blevins, Gonen and Zettlemoyer 2022, Analyzing the Mono- and Cross-Lingual Pretraining Dynamics of "
    "Multilingual Language Models, EMNLP",
    "second hand",
)
TRANSLATION_STAGES = Source(
    "Voita, Sennrich and Titov 2021, Language Modeling, Lexical Translation, Reordering: The Training Process of NMT "
    "through the Lens of Classical SMT, EMNLP (we do not know which variant of the reordering score it uses)",
    "abstract",
)
SOURCE_AND_TARGET = Source(
    "Voita, Sennrich and Titov 2021, Analyzing the Source and Target Contributions to Predictions in Neural "
    "Machine Translation, ACL",
    "second hand",
)
PIPELINE = Source(
    "Tenney, Das and Pavlick 2019, BERT Rediscovers the Classical NLP Pipeline, ACL (numbers of its published code)",
    "numbers only",
)
DESCRIPTION_LENGTH = Source(
    "Voita and Titov 2020, Information-Theoretic Probing with Minimum Description Length, EMNLP (its "
    "published code, whose bits mix nats and bits; its ratios do not)",
    "numbers only",
)
CONTROL_TASKS = Source(
    "Hewitt and Liang 2019, Designing and Interpreting Probes with Control Tasks, EMNLP-IJCNLP", "second hand"
)
STRUCTURAL_PROBE = Source(
    "Hewitt and Manning 2019, A Structural Probe for Finding Syntax in Word Representations, NAACL", "second hand"
)
BERT_SCORE = Source(
    "Zhang, Kishore, Wu, Weinberger and Artzi 2020, BERTScore: Evaluating Text Generation with BERT, ICLR",
    "numbers only",
)
HIERARCHICAL_SYNTAX = Source(
    "Blevins, Levy and Zettlemoyer 2018, Deep RNNs Encode Soft Hierarchical Syntax, ACL, as Voita's slides report it "
    "for Transformers",
    "second hand",
)
SCIBERT_PAPER = Source(
    "Beltagy, Lo and Cohan 2019, SciBERT: A Pretrained Language Model for Scientific Text, EMNLP-IJCNLP", "second hand"
)
LEGAL_BERT_PAPER = Source(
    "Chalkidis, Fergadiotis, Malakasiotis, Aletras and Androutsopoulos 2020, LEGAL-BERT: The Muppets straight"
    " out of Law School, Findings of EMNLP",
    "second hand",
)
TUNING_INSIDE = Source(
    "Merchant, Rahimtoroghi, Pavlick and Tenney 2020, What Happens To BERT Embeddings During Fine-tuning?, BlackboxNLP",
    "abstract",
)
TUNING_FORGETS = Source(
    "Merchant, Rahimtoroghi, Pavlick and Tenney 2020, What Happens To BERT Embeddings During Fine-tuning?, BlackboxNLP",
    "abstract",
    ours=True,
)
FEW_LABELS = Source(
    "Howard and Ruder 2018, Universal Language Model Fine-tuning for Text Classification, ACL", "second hand"
)
BERT_PAPER = Source(
    "Devlin, Chang, Lee and Toutanova 2019, BERT: Pre-training of Deep Bidirectional Transformers for "
    "Language Understanding, NAACL",
    "second hand",
)
REALM = Source(
    "Guu, Lee, Tung, Pasupat and Chang 2020, REALM: Retrieval-Augmented Language Model Pre-Training, ICML", "whole"
)
RAG = Source("Lewis et al. 2020, Retrieval-Augmented Generation for Knowledge-Intensive NLP Tasks, NeurIPS", "whole")
MORE_ROOM = Source(
    "Samuel, Charpentier and Wold 2024, More Room for Language: Investigating the Effect of Retrieval on "
    "Language Models, NAACL",
    "abstract",
)
RICH_PARAMETERS = Source(
    "Wadhwa et al. 2024, From RAGs to rich parameters: Probing how language models utilize external knowledge"
    " over parametric information for factual queries (pretrained causal LMs)",
    "whole",
)
RETRIEVAL_HEADS = Source(
    "Wu, Wang, Xiao, Peng and Fu 2024, Retrieval Head Mechanistically Explains Long-Context Factuality", "second hand"
)
KNOWLEDGE_CONFLICTS = Source(
    "Longpre et al. 2021, Entity-Based Knowledge Conflicts in Question Answering, EMNLP; Yu, Merullo and "
    "Pavlick 2023, Characterizing Mechanisms for Factual Recall in Language Models, EMNLP",
    "second hand",
)
FACTUAL_RECALL = Source(
    "Yu, Merullo and Pavlick 2023, Characterizing Mechanisms for Factual Recall in Language Models, EMNLP",
    "second hand",
)
RARE_FACTS = Source(
    "Mallen, Asai, Zhong, Das, Khashabi and Hajishirzi 2023, When Not to Trust Language Models, ACL", "second hand"
)
DISTILLED_READER = Source(
    "Izacard and Grave 2021, Distilling Knowledge from Reader to Retriever for Question Answering, ICLR", "numbers only"
)
