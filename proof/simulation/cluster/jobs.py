"""Processes that send and read nothing themselves: other engines, maintenance, administration, recovery."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial

import pyarrow as pa

from proof.simulation.cluster.foreign import try_commit_as_another
from proof.simulation.cluster.life import Life
from proof.simulation.cluster.producing import a_producer, begin_epoch, send_one, send_some, transaction
from proof.simulation.cluster.shape import LOG_RETENTION_MS, TopicPlan
from sparklog.admin import Admin, NewTopic
from sparklog.compaction import MaintenanceReport, OptimizePolicy, Step, compact_topic, maintain
from sparklog.delta.actions import AddFile
from sparklog.delta.checkpoint import write_checkpoint
from sparklog.delta.cleanup import clean_log
from sparklog.errors import SparklogError
from sparklog.log import Cluster, sequence_topic
from sparklog.storage import CreateResult
from sparklog.txn.recovery import recover_transactions
from tests.support import foreign_file

__all__ = ["SMALL", "administer", "foreign", "maintain_cluster", "night", "recover"]

SMALL = OptimizePolicy(target_bytes=20_000, min_files=2, growth=1.1)
"""Files as small as those of these worlds are worth being merged."""
_TIMEOUT_MS = 30_000.0


def foreign(life: Life) -> None:
    """Another engine, which adds files without offsets."""
    draw, play = life.draw, life.play
    recorder = life.recorder.producer(life.client_name("engine"))
    while life.goes_on():
        plan = draw.choice([plan for plan in play.shape.topics if not plan.is_compacted and not plan.is_recreated])
        values = [life.value() for _ in range(draw.randint(1, 4))]
        partition = draw.choice([None, *range(plan.partitions)])
        for value in values:
            recorder.send(value, plan.name, partition)
        if life.attempt("foreign commit", partial(_commit_as_another, life, plan, values, partition)):
            play.foreign_values.update(dict.fromkeys(values, plan.name))
            life.world.counts["foreign commits"] += 1
        life.gap()


def _commit_as_another(life: Life, plan: TopicPlan, values: list[str], partition: int | None) -> None:
    draw, log = life.draw, life.cluster.topic_log(plan.name)
    columns = {"value": pa.array([value.encode() for value in values])}
    if draw.random() < 0.5:
        columns["offset_delta"] = pa.array(sorted(draw.sample(range(9), len(values))), pa.int64())
    add: AddFile = foreign_file(log, pa.table(columns), partition=partition)
    while try_commit_as_another(log, add) is CreateResult.EXISTS:
        pass  # somebody else has the version


def maintain_cluster(life: Life) -> None:
    """What schedulers run: all of it, or some of it."""
    draw, play, counts = life.draw, life.play, life.world.counts
    compacted = [plan.name for plan in play.shape.topics if plan.is_compacted]
    while life.goes_on():
        name = draw.choice(play.topic_names)
        acts = [partial(_maintain, life)] * 2 + [partial(_sequence, life, name)]
        if compacted:
            acts.append(partial(_compact, life, compacted[0]))
        if play.shape.checkpoints:
            acts += [partial(_clean, life.cluster, name, counts)] * 3
        _tend(life, draw.choice(acts))
        life.gap()


def _tend(life: Life, act: Callable[[], None]) -> None:
    try:
        act()
    except SparklogError as error:
        life.check("maintain", error)


def _maintain(life: Life) -> None:
    draw = life.draw
    steps = sorted(set(Step) if life.play.shape.checkpoints else set(Step) - {Step.VACUUM})
    chosen = draw.sample(steps, draw.randint(1, len(steps)))
    report = maintain(life.cluster, steps=chosen, policy=SMALL, full=draw.random() < 0.5)
    _note(life, report)


def _maintain_all(life: Life) -> None:
    _note(life, maintain(life.cluster, policy=SMALL, full=True))  # in all folders, as the first run of a day


def _note(life: Life, report: MaintenanceReport) -> None:
    counts = life.world.counts
    counts["maintenances"] += 1
    for topic in report.topics:
        counts["optimized"] += topic.optimize is not None and bool(topic.optimize.ranges)
        counts["compactions"] += topic.compact is not None and bool(topic.compact.partitions)
        counts["retentions"] += topic.retention is not None and topic.retention.removed_files > 0
        counts["data files deleted"] += topic.vacuum.files_deleted if topic.vacuum is not None else 0
        counts["publications forgotten"] += topic.vacuum.expired_ids if topic.vacuum is not None else 0
        for error in topic.errors.values():
            life.check("maintain", error)
    for error in report.errors.values():
        life.check("maintain", error)
    for recovered in report.transactions:
        counts[f"recovered: {recovered.action.value}"] += 1
        if recovered.error is not None:
            life.check("maintain", recovered.error)
    for group in report.groups:
        if group.error is not None:
            life.check("maintain", group.error)


def _sequence(life: Life, topic: str) -> None:
    done = sequence_topic(life.cluster.topic_log(topic), timeout_ms=_TIMEOUT_MS)
    life.world.counts["sequenced"] += done.sequenced_count


def _compact(life: Life, topic: str) -> None:
    log, now_ms = life.cluster.topic_log(topic), life.cluster.clock.now_ms()
    done = compact_topic(log, topic, now_ms=now_ms, timeout_ms=_TIMEOUT_MS)
    life.world.counts["compactions"] += bool(done.partitions)


def _clean(cluster: Cluster, topic: str, counts: Counter[str]) -> None:
    """Write a checkpoint, and delete what lies below it as soon as the rules allow it."""
    log = cluster.topic_log(topic)
    counts["checkpoints"] += write_checkpoint(log) is not None
    done = clean_log(log, retention_ms=LOG_RETENTION_MS)
    counts["cleanups"] += done is not None and done.deleted_count > 0


def administer(life: Life) -> None:
    """New partitions; and a topic that comes and goes."""
    draw, play, counts = life.draw, life.play, life.world.counts
    admin = Admin(life.cluster)
    recreated = [plan for plan in play.shape.topics if plan.is_recreated]
    while life.goes_on():
        if recreated and draw.random() < 0.6:
            plan = recreated[0]
            counts["topics deleted"] += life.attempt("delete", partial(admin.delete_topics, [plan.name]))
            if draw.random() < 0.5:
                life.gap()
            again = NewTopic(plan.name, 1, topic_configs=plan.configs)
            life.attempt("create", partial(admin.create_topics, [again]))
        else:
            name = draw.choice(play.topic_names)
            wanted = play.topic(name).partitions + draw.randint(1, 2)
            counts["topics grown"] += life.attempt("grow", partial(admin.create_partitions, {name: wanted}))
        life.gap()


def recover(life: Life) -> None:
    """Whoever finishes what others left."""
    while life.goes_on():
        life.attempt("recover", partial(_recover, life))
        life.gap()


def _recover(life: Life) -> None:
    for one in recover_transactions(life.cluster):
        life.world.counts[f"recovered: {one.action.value}"] += 1
        if one.error is not None:
            life.check("recover", one.error)


def night(life: Life) -> None:
    """While somebody sleeps: appends, transactions in the sleeper's name, maintenance, checkpoints and cleaning."""
    draw, play = life.draw, life.play
    if not life.goes_on():
        return
    some, clean, sweep = partial(_appends, life), partial(_clean_all, life), partial(_maintain_all, life)
    acts: list[Callable[[], None]] = [some, sweep, clean, some, some, clean, sweep]
    step_ms = max(0.0, play.weather.night_until - life.world.now) / len(acts)
    for act in acts[: draw.choice([3, 7, 7])]:
        life.rest(step_ms * draw.uniform(0.5, 1.0))
        life.attempt("night", act)


def _appends(life: Life) -> None:
    draw = life.draw
    producer = a_producer(life)
    for name in life.play.topic_names:
        life.attempt("send", partial(send_one, life, producer, topic=name))
    producer.close(60.0)
    ids = [str(job.plan.settings["id"]) for job in life.play.jobs if job.plan.role == "transact"]
    if not ids or draw.random() < 0.5:
        return
    own = begin_epoch(life, draw.choice(ids))
    if own is not None:
        for _ in range(3):
            transaction(life, own, partial(send_some, life, own))
        own.close(20.0)


def _clean_all(life: Life) -> None:
    for name in life.play.topic_names:
        try:
            _clean(life.cluster, name, life.world.counts)
        except SparklogError as error:
            life.check("clean", error)
