"""What somebody may have meant who wrote a wrong name."""

import pytest

from infoflow import UserError
from infoflow.studies import StudyPlan


def test_the_nearest_setting_is_named():
    with pytest.raises(UserError, match=r"no setting training\.updats\. Did you mean training\.updates\?"):
        StudyPlan.from_json({"training": {"updats": 3}})
    with pytest.raises(UserError, match=r"no setting nothing_like_it\. Known settings"):
        StudyPlan.from_json({"nothing_like_it": 3})


def test_the_nearest_preset_is_named():
    with pytest.raises(UserError, match=r"No study plan qick.*Did you mean quick\?"):
        StudyPlan.load("qick")
