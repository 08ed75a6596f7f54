"""A cluster's address that is not encrypted: refused, unless the person says that the network is theirs alone."""

ADDRESS = "tcp://scheduler.example:8786"


def test_an_address_without_encryption_is_refused(infoflow, plan, tmp_path):
    answer = infoflow("study", plan, "--out=run", f"--cluster={ADDRESS}")
    assert (answer.code, answer.out) == (2, "")
    (line,) = answer.err.strip().splitlines()
    assert line.startswith(f"{ADDRESS} is not encrypted: anyone who reaches that port can run code as you.")
    assert "--insecure" in line
    assert not (tmp_path / "run").exists()


def test_insecure_allows_it(infoflow, plan, monkeypatch):
    """As far as the address that a Dask client would connect to."""
    from infoflow.engine import Engine, cluster_engine
    from infoflow.foundation import UserError

    asked = []

    def reached(where: str, *arguments, **options) -> Engine:
        asked.append((where, options["insecure"]))
        cluster_engine(where, *arguments, **options)  # not refused
        raise UserError("Reached.")

    monkeypatch.setattr("infoflow.studies._study.cluster_engine", reached)
    answer = infoflow("study", plan, "--out=run", f"--cluster={ADDRESS}", "--insecure")
    assert (answer.code, answer.err.strip()) == (2, "Reached.")
    assert asked == [(ADDRESS, True)]


def test_insecure_alone_makes_no_sense(infoflow, plan, tmp_path):
    answer = infoflow("study", plan, "--out=run", "--insecure")
    assert (answer.code, answer.err.strip()) == (2, "--insecure needs --cluster: name the cluster, or leave it out.")
    assert not (tmp_path / "run").exists()
