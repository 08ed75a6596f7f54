"""Whether the heads that matter on a study's own sentences matter on those of another domain."""

from infoflow.flow import PassOptions, describe_measure
from infoflow.foundation import digest
from infoflow.heads import ABLATION_TRANSFER, Ablation, ablation_transfer
from infoflow.models import Model
from infoflow.objectives import AbstractObjective

from ._data import StudyData
from ._plan_sections import AnalysisPlan
from ._workbench import Part


def transfer_keys(states_key: str, other: str | None, plan: AnalysisPlan) -> dict[str, str]:
    """What the table depends on, `other` being the digest of the other domain; none where the plan names none."""
    if other is None:
        return {}
    measure = describe_measure(Ablation(sentences=plan.ablation_sentences))
    parts = [states_key, ABLATION_TRANSFER.version, other, measure]
    return {ABLATION_TRANSFER.name: digest(parts)}


def transfer(model: Model, data: StudyData, plan: AnalysisPlan, corruption: AbstractObjective) -> Part:
    """Correlation of the effects of single ablations on the analysed sentences and on those of the other domain."""
    assert data.other_domain is not None
    if Ablation().why_not(model):
        return {}
    options = PassOptions(tokens_per_batch=plan.tokens_per_batch, corruption=corruption)
    return {
        ABLATION_TRANSFER.name: ablation_transfer(
            model, data.analysed, data.other_domain, sentences=plan.ablation_sentences, options=options
        )
    }
