"""What Spark's UI says of sparklog's jobs: groups and descriptions. Without Spark."""

from __future__ import annotations

from typing import Any

from sparklog.spark.session.job_groups import described_jobs

GROUP, DESCRIPTION = "spark.jobGroup.id", "spark.job.description"


class Session:
    """What is asked of a session."""

    def __init__(self, **properties: str) -> None:
        self.properties = {name.replace("_", "."): value for name, value in properties.items()}
        self.sparkContext = self

    def getLocalProperty(self, name: str) -> str | None:
        return self.properties.get(name)

    def setLocalProperty(self, name: str, value: str | None) -> None:
        if value is None:
            self.properties.pop(name, None)
        else:
            self.properties[name] = value


def test_jobs_have_a_group_and_a_description_and_what_was_there_is_there_again() -> None:
    session: Any = Session()
    with described_jobs(session, "sparklog: compacting topics/t"):
        assert session.properties == dict.fromkeys((GROUP, DESCRIPTION), "sparklog: compacting topics/t")
    assert session.properties == {}


def test_whoever_has_a_group_to_cancel_keeps_it() -> None:
    session: Any = Session()
    session.properties = {GROUP: "mine", DESCRIPTION: "nightly"}
    with described_jobs(session, "sparklog: merging"):
        assert session.properties == {GROUP: "mine", DESCRIPTION: "sparklog: merging"}
    assert session.properties == {GROUP: "mine", DESCRIPTION: "nightly"}
