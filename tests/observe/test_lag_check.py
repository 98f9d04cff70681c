"""Groups that fall behind are told one by one; a lag that can't be known isn't one of 0."""

from __future__ import annotations

from sparklog import Admin, OffsetAndMetadata, TopicPartition
from sparklog.errors import StoreUnavailableError
from sparklog.observe.health import HealthCheck, Verdict
from sparklog.observe.lag_check import LagLimits, check_lag
from tests.observe.support import Watched, a_member, watched
from tests.support import T0_MS


def a_lag() -> Watched:
    """Topics t and u with 3 and 1 records, 90 s old; ``slow`` has read none, ``quick`` all of t."""
    here = watched()
    for topic, values in (("t", "abc"), ("u", "d")):
        here.append(here.topic(topic), *values, timestamp_ms=T0_MS - 90_000)
    with Admin(here.cluster) as admin:
        admin.alter_group_offsets("slow", {TopicPartition(topic, 0): OffsetAndMetadata(0) for topic in "tu"})
        admin.alter_group_offsets("quick", {TopicPartition("t", 0): OffsetAndMetadata(3)})
    return here


def told(checks: list[HealthCheck]) -> list[tuple[Verdict, str]]:
    assert {check.name for check in checks} == {"lag"}
    return [(check.verdict, check.detail) for check in checks]


def test_each_group_beyond_a_limit_has_a_line() -> None:
    here = a_lag()
    assert told(check_lag(here.cluster, LagLimits(most_records=3))) == [
        (Verdict.FAILED, "group slow: a lag of 4 records, expected 3 at most")
    ]
    assert told(check_lag(here.cluster, LagLimits(most_records=4, most_ms=60_000))) == [
        (
            Verdict.FAILED,
            "group slow: its oldest unread record has been waiting for 90.0 s, expected 60 s at most",
        )
    ]
    assert told(check_lag(here.cluster, LagLimits(most_records=4, most_ms=90_000))) == [
        (Verdict.OK, "2 groups; the most is 4 records of slow")
    ]
    assert len(check_lag(here.cluster, LagLimits(most_records=-1))) == 2


def test_only_the_groups_of_a_pattern_count_and_one_must_be_there() -> None:
    here = a_lag()
    assert told(check_lag(here.cluster, LagLimits(most_records=0, groups=("qu*",)))) == [
        (Verdict.OK, "1 group; the most is 0 records of quick")
    ]
    assert told(check_lag(here.cluster, LagLimits(most_records=9, groups=("qu*", "bill")))) == [
        (Verdict.FAILED, "no group matches bill: expected one at least, with a member or a committed offset")
    ]
    assert told(check_lag(watched().cluster, LagLimits(most_records=0))) == [(Verdict.OK, "there are no groups")]


def test_share_groups_are_groups() -> None:
    """✗ They are passed over, and a pattern that names one matches no group."""
    here = a_lag()
    with Admin(here.cluster) as admin:
        admin.alter_share_group_offsets("pool", {TopicPartition("t", 0): 1})
    assert told(check_lag(here.cluster, LagLimits(most_records=1, groups=("po*",)))) == [
        (Verdict.FAILED, "share group pool: a lag of 2 records, expected 1 at most")
    ]
    assert told(check_lag(here.cluster, LagLimits(most_records=2, most_ms=0, groups=("pool",)))) == [
        (Verdict.OK, "1 group; the most is 2 records of pool")
    ]
    assert len(check_lag(here.cluster, LagLimits(most_records=1))) == 2


def test_records_count_for_a_member_that_never_committed() -> None:
    here = a_lag()
    a_member(here, "new", "t", reads_from_start=True)
    limits = LagLimits(most_records=2, groups=("new",))
    assert told(check_lag(here.cluster, limits)) == [
        (Verdict.FAILED, "group new: a lag of 3 records (3 where it never committed), expected 2 at most")
    ]
    [(verdict, detail)] = told(check_lag(here.cluster, LagLimits(most_ms=60_000, groups=("new",))))
    assert verdict is Verdict.FAILED
    assert "never committed" in detail


def test_a_topic_that_no_living_member_reads_any_more_doesnt_count() -> None:
    here = a_lag()
    a_member(here, "slow", "u")
    assert told(check_lag(here.cluster, LagLimits(most_records=1, groups=("slow",)))) == [
        (Verdict.OK, "1 group; the most is 1 record of slow")
    ]


def test_what_cant_be_read_is_no_lag_of_0() -> None:
    here = a_lag()
    here.failing.closed = "topics/t/"
    [(verdict, detail)] = told(check_lag(here.cluster, LagLimits(most_records=9)))
    assert verdict is Verdict.FAILED
    assert detail.startswith("topic t: the lag of groups that read it is unknown: ")
    here.failing.closed = "groups/slow/"
    [(verdict, detail)] = told(check_lag(here.cluster, LagLimits(most_records=9)))
    assert detail.startswith("group slow: its lag is unknown: ")
    [(verdict, _)] = told(check_lag(here.cluster, LagLimits(most_records=9, groups=("quick",))))
    assert verdict is Verdict.OK
    here.failing.is_away = True
    [check] = check_lag(here.cluster, LagLimits(most_records=9))
    assert (check.verdict, type(check.error)) == (Verdict.FAILED, StoreUnavailableError)
