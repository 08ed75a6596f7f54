"""The papers behind the claims."""

BOTTOM_UP = (
    "Voita, Sennrich and Titov 2019, The Bottom-up Evolution of Representations in the Transformer, EMNLP-IJCNLP "
    "(numbers read off its figures)"
)
HEAVY_LIFTING = (
    "Voita, Talbot, Moiseev, Sennrich and Titov 2019, Analyzing Multi-Head Self-Attention: Specialized Heads Do the "
    "Heavy Lifting, the Rest Can Be Pruned, ACL"
)
LESSONS = (
    "Zhang and Bowman 2018, Language Modeling Teaches You More than Translation Does: Lessons Learned Through "
    "Auxiliary Syntactic Task Analysis, BlackboxNLP"
)
GEOMETRY = (
    "Ethayarajh 2019, How Contextual are Contextualized Word Representations?, EMNLP-IJCNLP (numbers of its published "
    "code)"
)
ENCODER_SPACES = (
    "Vázquez, Celikkanat, Creutz and Tiedemann 2021, On the differences between BERT and MT encoder spaces and how to "
    "address them in translation tasks, ACL-IJCNLP Student Research Workshop"
)
CLARK = "Clark, Khandelwal, Levy and Manning 2019, What Does BERT Look At? An Analysis of BERT's Attention, BlackboxNLP"
SIXTEEN_HEADS = "Michel, Levy and Neubig 2019, Are Sixteen Heads Really Better than One?, NeurIPS"
LOSS_CHANGE = (
    "Lan, Liu, Zhou and Yosinski 2019, LCA: Loss Change Allocation for Neural Network Training, NeurIPS (abstract and "
    "published code)"
)
PARAMETER_CONTRIBUTIONS = (
    "Vázquez, Celikkanat, Ravishankar, Creutz and Tiedemann 2022, A Closer Look at Parameter Contributions When "
    "Training "
    "Neural Language and Translation Models, COLING (abstract; numbers and details from the project's slides)"
)
TRANSLATION_DYNAMICS = (
    "Zhu, Li, Liu, Zhao and Shi 2020, Understanding Learning Dynamics for Neural Machine Translation, arXiv 2004.02199 "
    "(abstract)"
)
