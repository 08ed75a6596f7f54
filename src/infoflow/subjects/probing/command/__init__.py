"""`infoflow probe`, `infoflow fill-in` and `infoflow bert-score`."""

from ._fill_in import fill_in as fill_in
from ._probe import bert_score as bert_score
from ._probe import probe as probe
