"""Any group gets what Kafka's own assignors give: the classes of the Kafka that the benchmarks run are asked."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from random import Random

import pytest

from benchmarks import kafka_broker
from sparklog.groups.assignors import ASSIGNORS, MemberSubscription
from sparklog.model import TopicPartition
from tests.depth import by_depth

Group = tuple[dict[str, int], dict[str, MemberSubscription]]
NAMES = ("range", "roundrobin", "sticky")

# A line in: assignor|topic-count,…|member;instance id;topic,…;partition,…|…   A line out: member;partition,…|…
RUNNER = """
import java.io.*;
import java.util.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Subscription;
import org.apache.kafka.clients.consumer.internals.AbstractStickyAssignor;
import org.apache.kafka.common.TopicPartition;

public class AssignorRunner {
    // What the eager and the cooperative one have in common; all that is owned is of one generation.
    static class Sticky extends AbstractStickyAssignor {
        public String name() { return "sticky"; }
        protected MemberData memberData(Subscription subscription) {
            return new MemberData(subscription.ownedPartitions(), subscription.generationId());
        }
    }

    static List<TopicPartition> partitions(String text) {
        List<TopicPartition> found = new ArrayList<>();
        for (String each : text.split(",")) {
            int dash = each.lastIndexOf('-');
            if (dash > 0)
                found.add(new TopicPartition(each.substring(0, dash), Integer.parseInt(each.substring(dash + 1))));
        }
        return found;
    }

    public static void main(String[] arguments) throws IOException {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, "UTF-8"));
        for (String line; (line = lines.readLine()) != null;) {
            String[] parts = line.split("[|]", -1);
            Map<String, Subscription> members = new HashMap<>();
            Set<String> wanted = new HashSet<>();
            for (int i = 2; i < parts.length; i++) {
                String[] member = parts[i].split(";", -1);
                List<String> topics = Arrays.asList(member[2].split(","));
                wanted.addAll(topics);
                Subscription subscription = new Subscription(topics, null, partitions(member[3]), 1, Optional.empty());
                if (!member[1].isEmpty())
                    subscription.setGroupInstanceId(Optional.of(member[1]));
                members.put(member[0], subscription);
            }
            Map<String, Integer> counts = new HashMap<>();  // as AbstractPartitionAssignor.assign(Cluster, …) has them
            for (TopicPartition topic : partitions(parts[1]))
                if (topic.partition() > 0 && wanted.contains(topic.topic()))
                    counts.put(topic.topic(), topic.partition());
            Map<String, List<TopicPartition>> assigned =
                parts[0].equals("range") ? new RangeAssignor().assign(counts, members)
                : parts[0].equals("roundrobin") ? new RoundRobinAssignor().assign(counts, members)
                : new Sticky().assign(counts, members);
            StringJoiner told = new StringJoiner("|");
            assigned.forEach((member, its) -> {
                StringJoiner names = new StringJoiner(",");
                its.forEach(each -> names.add(each.toString()));
                told.add(member + ";" + names);
            });
            System.out.println(told);
        }
    }
}
"""


@pytest.mark.kafka
@pytest.mark.parametrize("name", NAMES)
def test_kafka_gives_the_same(name, kafkas):
    all_groups, answers = kafkas
    for group, theirs in zip(all_groups, answers[name], strict=True):
        ours = {member: [told(each) for each in its] for member, its in ASSIGNORS[name].assign(*group).items()}
        if name == "range":  # whose topics Kafka gives in the order of their hashes
            ours, theirs = ({member: sorted(its) for member, its in result.items()} for result in (ours, theirs))
        assert ours == theirs, group


@pytest.fixture(scope="module")
def kafkas(runner) -> tuple[list[Group], dict[str, list[dict[str, list[str]]]]]:
    """Groups, and what Kafka gives them by each assignor, told by one JVM."""
    random = Random(20)
    all_groups = [a_group(random, size=random.choice([4, 9, 40])) for _ in range(by_depth(gate=300, nightly=3_000))]
    answers = ask_kafka(runner, all_groups)
    return all_groups, {name: answers[at :: len(NAMES)] for at, name in enumerate(NAMES)}


@pytest.fixture(scope="module")
def runner(tmp_path_factory) -> list[str]:
    """The command that answers lines."""
    compiler = shutil.which("javac")
    if compiler is None:
        pytest.skip("there is no javac on the PATH")
    try:
        java, jars = kafka_broker._java(), f"{kafka_broker.fetched_jars('pom.xml', 'a Kafka broker', megabytes=44)}/*"
    except kafka_broker.BrokerUnavailableError as error:
        pytest.skip(str(error))
    folder: Path = tmp_path_factory.mktemp("runner")
    (folder / "AssignorRunner.java").write_text(RUNNER, encoding="utf-8")
    subprocess.run(
        [compiler, "-J-XX:TieredStopAtLevel=1", "-encoding", "UTF-8", "-cp", jars, "-proc:none", "AssignorRunner.java"],
        cwd=folder,
        check=True,
    )
    return [
        java,
        *kafka_broker.BRIEF_JVM_OPTIONS,
        "-Dorg.apache.logging.log4j.level=OFF",
        "-cp",
        f"{folder}:{jars}",
        "AssignorRunner",
    ]


def ask_kafka(runner: list[str], all_groups: list[Group]) -> list[dict[str, list[str]]]:
    """What each group gets by each of ``NAMES``, one group after the other."""
    lines = []
    for counts, members in all_groups:
        topics = ",".join(f"{topic}-{count}" for topic, count in counts.items())
        its = (
            f"{name};{member.instance_id or ''};{','.join(member.topics)};{','.join(map(told, sorted(member.owned)))}"
            for name, member in sorted(members.items())
        )
        group = "|".join([topics, *its])
        lines += [f"{name}|{group}" for name in NAMES]
    done = subprocess.run(runner, input="\n".join(lines), capture_output=True, text=True, encoding="utf-8", check=True)
    answers = ([part.split(";") for part in line.split("|")] for line in done.stdout.splitlines())
    return [{member: its.split(",") if its else [] for member, its in answer} for answer in answers]


def a_group(random: Random, *, size: int) -> Group:
    """Members that own anything: much or little, also what two own or what isn't theirs any more."""
    counts = {f"topic{number}": random.choice([0, 1, 2, 3, 5, 8, size]) for number in range(random.randint(1, 6))}
    topics = [*counts, "gone"]
    names = sorted({f"consumer-{random.randrange(100_000):x}" for _ in range(random.randint(1, size))})
    owned: dict[str, set[TopicPartition]] = {name: set() for name in names}
    twice = random.choice([0, 0, 0, 0.1])
    lean = random.choice([1, 2, 4])  # to the first members
    for topic, count in counts.items():
        for number in range(count):
            for chance in (0.85, twice):
                if random.random() < chance:
                    owned[names[int(random.random() ** lean * len(names))]].add(TopicPartition(topic, number))
    all_want_all = random.random() < 0.4
    members = {}
    for name in names:
        wanted = topics if all_want_all else random.sample(topics, random.randint(1, len(topics)))
        keeps = owned[name] if random.random() < 0.1 else {each for each in owned[name] if each.topic in wanted}
        members[name] = MemberSubscription(
            topics=tuple(sorted(wanted)),
            instance_id=f"instance-{random.randrange(100_000)}" if random.random() < 0.3 else None,
            owned=frozenset(keeps),
        )
    return counts, members


def told(partition: TopicPartition) -> str:
    return f"{partition.topic}-{partition.partition}"
