"""Checking a cluster, or some of its topics. Changes nothing."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from sparklog.errors import SparklogError, as_sparklog_error, is_no_topic
from sparklog.groups.admin.inspection import group_folders
from sparklog.integrity.findings import Code, Counts, Finding, Report, Severity, Subject
from sparklog.integrity.groups import TopicHeads, check_group
from sparklog.integrity.nested import look_for_nested
from sparklog.integrity.topics import TopicSeen, check_topic
from sparklog.integrity.transactions import TransactionsSeen, check_gone_topics, see_transactions
from sparklog.integrity.unread import unread, unread_code
from sparklog.log.cluster import Cluster, open_cluster
from sparklog.paths import TOPICS_FOLDER, encode_id
from sparklog.storage.each_alone import each_alone, one_alone

__all__ = ["check_cluster", "opened"]

_LOOKS = 3
"""At most so many looks are made until no error is new: an error that isn't seen twice in a row was on its way."""

_LOGGER = logging.getLogger("sparklog.integrity")

T = TypeVar("T")


def check_cluster(
    cluster: Cluster | str | Path,
    topics: Iterable[str] | None = None,
    *,
    deep: bool = False,
    storage_options: Mapping[str, Any] | None = None,
    tell: Callable[[str, int, int], object] = lambda kind, done, count: None,
) -> Report:
    """Check everything that a cluster holds, and report what isn't as it should be. Writes nothing.

    May run beside producers, consumers and jobs: each topic is judged as of one version, and before an error is
    reported, what it concerns is loaded and judged again.

    Args:
        cluster: opened, or its URI.
        topics: only these; then groups and transactions are left alone. By default all, those that were deleted among
            them, and all groups and transactional ids.
        deep: also read every live file, and compare its rows with what the log states of them.
        storage_options: for a URI.
        tell: is called before each topic, and before the groups, with the kind, how many of it are done and how many
            there are.
    Raises:
        InvalidArgumentError: there is no cluster.
        UnknownTopicOrPartitionError: one of ``topics`` isn't there.
        StoreError: the store can't be read. What alone can't be read of it is a finding.
    """
    cluster = opened(cluster, storage_options)
    findings: list[Finding] = []
    if topics is not None:
        return _check_topics(cluster, sorted(set(topics)), deep=deep, tell=tell)
    seen, its_findings = _settled(lambda: see_transactions(cluster), lambda found: found.findings)
    findings += its_findings
    counts = seen.counts
    ids: dict[str, str | None] = {}
    strangers: list[str] = []
    names = cluster.store.list_names(TOPICS_FOLDER)
    for done, name in enumerate(names):
        tell("topics", done, len(names))
        try:
            topic, its_findings = _check_topic(cluster, name, seen, deep=deep)
        except SparklogError as error:
            if not is_no_topic(error):
                raise
            strangers.append(name)  # a folder of somebody else
            continue
        findings += its_findings
        counts += topic.counts
        ids[name] = topic.topic_id
    findings += check_gone_topics(seen, ids)
    heads = TopicHeads(cluster)
    nested = look_for_nested(cluster, strangers)
    findings += nested.findings
    groups = [name for name in group_folders(cluster) if encode_id(name) in nested.group_parts]
    tell("groups", 0, len(groups))
    checked = each_alone(cluster.store, lambda name: _check_group(cluster, name, heads), groups)
    for name, result in zip(groups, checked, strict=True):
        its_findings, group = _whole(Subject(group=name), Counts(groups=1), result)
        findings += its_findings
        counts += group
    return Report.of(findings, counts)


def _check_topics(
    cluster: Cluster, names: Sequence[str], *, deep: bool, tell: Callable[[str, int, int], object]
) -> Report:
    """Check some topics alone."""
    findings: list[Finding] = []
    counts = Counts()
    for done, name in enumerate(names):
        tell("topics", done, len(names))
        topic, its_findings = _check_topic(cluster, name, None, deep=deep)
        findings += its_findings
        counts += topic.counts
    return Report.of(findings, counts)


def opened(cluster: Cluster | str | Path, storage_options: Mapping[str, Any] | None = None) -> Cluster:
    """A cluster that is there. Raises ``InvalidArgumentError`` where there is none."""
    if isinstance(cluster, Cluster):
        return cluster
    return open_cluster(cluster, storage_options=storage_options, create=False)


def _check_topic(
    cluster: Cluster, name: str, seen: TransactionsSeen | None, *, deep: bool
) -> tuple[TopicSeen, Sequence[Finding]]:
    logs = seen
    is_first = True

    def look() -> TopicSeen:
        nonlocal logs, is_first
        if logs is not None and not is_first:  # what is complete by now, the topic has when it is loaded again
            logs = see_transactions(cluster)
        is_first = False
        return check_topic(cluster, name, logs, deep=deep)

    result = one_alone(cluster.store, lambda: _settled(look, lambda found: found.findings))
    if not isinstance(result, Exception):
        return result
    if is_no_topic(result):
        raise result
    findings, counts = _whole(Subject(topic=name), Counts(topics=1), result)
    return TopicSeen(findings=tuple(findings), counts=counts, topic_id=None), findings


def _check_group(cluster: Cluster, name: str, heads: TopicHeads) -> tuple[Sequence[Finding], Counts]:
    (_, counts), findings = _settled(lambda: check_group(cluster, name, heads), lambda found: found[0])
    return findings, counts


def _whole(
    subject: Subject, counts: Counts, result: tuple[Sequence[Finding], Counts] | Exception
) -> tuple[Sequence[Finding], Counts]:
    """The result of a check; where it failed as a whole, a finding that says so."""
    if not isinstance(result, Exception):
        return result
    if not isinstance(result, SparklogError):  # a defect, which hinders the check of no other
        _LOGGER.error("the check of %s failed unexpectedly", subject, exc_info=result)
    return [unread(as_sparklog_error(result), subject, unread_code(subject))], counts


def _settled(look: Callable[[], T], findings_of: Callable[[T], Sequence[Finding]]) -> tuple[T, Sequence[Finding]]:
    """Look until no error is new: the last look's result and its findings; of errors those of the look before, too."""
    result = look()
    findings = findings_of(result)
    for _ in range(_LOOKS - 1):
        errors = {_key(finding) for finding in findings if finding.severity is Severity.ERROR}
        if not errors:
            break
        result = look()
        new = findings_of(result)
        findings = [finding for finding in new if finding.severity is not Severity.ERROR or _key(finding) in errors]
        if len(findings) == len(new):
            break
    return result, findings


def _key(finding: Finding) -> tuple[Code, Subject]:
    return finding.code, finding.subject
