"""Pages show what is there, say what can't be read, and never make HTML of what a record or a name holds."""

from __future__ import annotations

import re
from collections.abc import Sequence
from html.parser import HTMLParser
from urllib.parse import quote

import pyarrow as pa
import pytest

from sparklog.admin import Admin
from sparklog.compaction import maintain
from sparklog.compaction.last_runs import note_run
from sparklog.console import hash_password
from sparklog.log import Cluster
from sparklog.paths import transaction_entry
from sparklog.producer import Producer
from sparklog.storage import MemoryStore
from sparklog.testing import WrappedStore
from tests.compaction.support import a_run
from tests.console.support import TestClient, a_cluster, a_topic, backend_of, console, consume, produce
from tests.observe.support import watched
from tests.support import a_writer

HOSTILE = b"<script>alert(1)</script><img src=x onerror=alert(2)>\"'><b hx-get=/x>"


class Elements(HTMLParser):
    """What a browser makes of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attributes)))


def assert_harmless(page: str) -> None:
    """No element or attribute comes from anything but a template."""
    elements = Elements(page).found
    assert elements
    scripts = [attributes.get("src") for tag, attributes in elements if tag == "script"]
    assert [*scripts[:-1]] in ([], ["/static/htmx.min.js"], ["/static/uplot.min.js"])
    assert scripts[-1] == "/static/console.js"
    assert {tag for tag, _ in elements} & {"img", "b", "iframe", "object", "embed", "style", "base"} == set()
    names = {name for _, attributes in elements for name in attributes}
    assert [name for name in names if name.startswith("on")] == []
    assert {attributes["hx-get"][:2] for _, attributes in elements if attributes.get("hx-get")} <= {"/", "/?"}  # type: ignore[index]


def ok(client: TestClient, path: str, status: int = 200) -> str:
    answer = client.get(path)
    assert answer.status_code == status, answer.text
    return str(answer.text)


def text_of(page: str) -> str:
    return " ".join(re.sub(r"<[^>]*>", " ", page).split())


@pytest.fixture
def cluster() -> Cluster:
    cluster = a_cluster()
    a_topic(cluster, partitions=2)
    produce(cluster, b'{"total": 1}', b'{"total": 2}', b'{"total": 3}', key=b"user-1", headers=[("h", b"v")])
    return cluster


def test_the_overview_shows_topics_groups_and_maintenance(cluster: Cluster) -> None:
    consume(cluster, "billing", 2)
    with console(cluster) as client:
        page = text_of(ok(client, "/"))
    assert "orders 2 – 3" in page
    assert "billing empty 0 1" in page
    assert "No run has noted anything yet. Nothing is due." in page


def test_before_the_first_look_names_are_shown(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sparklog.console.backend._FIRST_LOOK_S", 0.0)
    consume(cluster, "billing", 1)
    with console(cluster, looks=False) as client:
        page = ok(client, "/")
    assert "The first look is under way" in page
    assert 'href="/topics/orders"' in page
    assert "billing" in page


def held(topic: str, page: str) -> tuple[str, str, str]:
    """Records, bytes and files of a topic, as the overview shows them."""
    found = re.search(rf"{topic} \d+ – ((?:~ )?\d+) (\S+ \S*B|…) (\d+|…) ", text_of(page))
    assert found is not None
    return found[1], found[2], found[3]


def overviews_of_a_look(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The overview as each part of a look has it."""
    pages: list[str] = []
    backend = backend_of(client)
    monkeypatch.setattr(backend.history, "add", lambda figures: pages.append(ok(client, "/")))
    backend.look()
    return pages


def test_what_the_first_look_has_read_so_far_is_shown(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sparklog.observe.cluster_watch._FEW_TOPICS", 1)
    consume(cluster, "billing", 2)
    a_topic(cluster, "zulu")
    with console(cluster, looks=False) as client:
        pages = overviews_of_a_look(client, monkeypatch)
        whole = text_of(ok(client, "/"))
    assert "zulu" in whole
    assert "what is shown as … isn’t known yet, nor what maintenance would do in all topics. This page" in text_of(
        pages[0]
    )
    assert held("orders", pages[0]) == held("orders", whole) != ("3", "…", "…")
    assert re.search(r"billing empty 0 1 \d", text_of(pages[0]))
    assert "zulu" in pages[0]
    assert "No transactional id." in pages[0]
    assert "What is due in all topics isn’t known yet" in pages[0]


def test_what_the_newest_commits_do_not_tell_is_not_known_at_first(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sparklog.observe.cluster_watch._FEW_TOPICS", 1)
    monkeypatch.setattr("sparklog.observe.cluster_watch.topics_to_load_first", lambda part: [])
    a_topic(cluster, "zulu")
    consume(cluster, "billing", 1)
    with monkeypatch.context() as older:
        older.setattr("sparklog.log.commit.totals_after", lambda *_: None)
        produce(cluster, b"from a client of before")
    with console(cluster, looks=False) as client:
        pages = overviews_of_a_look(client, monkeypatch)
        assert held("orders", ok(client, "/"))[0] == "4"
    assert held("orders", pages[0]) == ("~ 4", "…", "…")
    assert "billing empty 0 3 …" in text_of(pages[0])


def test_what_maintenance_would_do_is_told_where_it_is_known(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sparklog.observe.cluster_watch._FEW_TOPICS", 1)
    monkeypatch.setattr("sparklog.observe.cluster_watch.topics_to_load_first", lambda part: ["orders"])
    a_topic(cluster, "zulu")
    with console(cluster, looks=False) as client:
        pages = overviews_of_a_look(client, monkeypatch)
        pages.append(ok(client, "/"))
    due = [re.findall(r"<td>delete</td>\s*<td>([^<]*)</td>", page) for page in pages]
    assert due == [["", "…"], ["", ""]]


def test_totals_of_before_the_newest_commit_are_marked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the newest commit carries none, as behind another engine's, records, bytes, files and the age are older."""
    w = watched()
    writer = w.topic("orders")
    w.append(writer, "a")
    with console(w.cluster) as client:
        before = held("orders", ok(client, "/"))
        monkeypatch.setattr("sparklog.log.commit.totals_after", lambda *_: None)
        for value in "bcdefg":  # more than two commits between looks: the newest alone is read
            w.append(writer, value)
        backend_of(client).look()
        after = text_of(ok(client, "/"))
        [figures] = client.get("/api/topics").json()["topics"]
    assert (figures["version"], figures["files_version"]) == (7, 1)
    assert before[0] == "1"
    assert f"~ 1 ~ {before[1]} ~ {before[2]} " in after


def test_requests_a_day_are_told_from_the_second_look_on() -> None:
    w = watched()
    writer = w.topic("orders")
    with console(w.cluster) as client:
        assert "Requests a day" not in ok(client, "/")
        w.append(writer, "a")
        w.clock.advance(86_400)
        backend_of(client).look()
        page = text_of(ok(client, "/"))
    assert "commits to topics 2,000 0 0 $0.01" in page  # a commit and a file in a thousandth of a day
    assert "looks of this console 0 5,760 28,800 $0.15" in page


def test_names_are_filtered_sorted_and_paged() -> None:
    cluster = a_cluster()
    for number in range(103):
        a_topic(cluster, f"t{number:03}")
    produce(cluster, b"x", topic="t050")
    with console(cluster) as client:
        first = re.findall(r'href="/topics/(t\d+)"', ok(client, "/"))
        last = re.findall(r'href="/topics/(t\d+)"', ok(client, "/?page=99"))
        assert (len(first), last) == (100, ["t100", "t101", "t102"])
        assert re.findall(r'href="/topics/(t\d+)"', ok(client, "/?sort=records"))[0] == "t050"
        assert re.findall(r'href="/topics/(t\d+)"', ok(client, "/?q=T05&sort=nonsense&page=x"))[:2] == ["t050", "t051"]


def test_a_topic_that_cannot_be_read_is_told_and_hinders_nothing() -> None:
    w = watched()
    for name in ("bad", "good"):
        w.append(w.topic(name), "a")
    path = w.cluster.topic_log("bad").path_of(1)
    w.memory.put(path, b"no JSON")
    with console(w.cluster) as client:
        page = ok(client, "/")
        assert "corrupt log entry" in text_of(page)
        assert 'href="/topics/good"' in page
        assert "CorruptLogError" in ok(client, "/topics/bad", 500)
        assert ok(client, "/topics/good")
        assert client.get("/api/topics").json()["unreadable"][0]["name"] == "bad"


def test_things_that_may_not_be_read_are_told_and_hinder_nothing() -> None:
    w = watched()
    for name in ("bad", "good"):
        w.append(w.topic(name), "a")
    w.failing.closed = "topics/bad/"
    with console(w.cluster) as client:
        page = ok(client, "/")
        assert "forbidden" in text_of(page)
        assert 'href="/topics/good"' in page
        assert client.get("/api/topics").json()["unreadable"][0]["name"] == "bad"
        assert client.get("/api/sql", params={"q": "select count(*) as n from good"}).text.count('"n"')
        assert "good" in client.get("/api/sql", params={"q": "show tables"}).text
        metrics = client.get("/metrics").text
        assert 'sparklog_unreadable{kind="topic",name="bad"} 1' in metrics
        assert "sparklog_up 1" in metrics


def test_a_store_that_is_away_is_told() -> None:
    w = watched()
    w.append(w.topic("orders"), "a")
    with console(w.cluster) as client:
        w.failing.is_away = True
        backend_of(client).look()
        page = text_of(ok(client, "/"))
        assert "The store can’t be read" in page
        assert "orders" in page
        assert client.get("/metrics").text.count("sparklog_up 0") == 1


def test_a_topic_has_partitions_commits_and_settings(cluster: Cluster) -> None:
    with console(cluster) as client:
        page = text_of(ok(client, "/topics/orders"))
    assert "WRITE sparklog/" in page
    assert "CREATE TOPIC" in page
    assert "cleanup.policy delete delete" in page
    assert "Produce a record" not in page


@pytest.mark.parametrize(
    ("query", "offsets"),
    [
        ("", [2, 1, 0]),
        ("mode=newest&limit=1", [2]),
        ("mode=oldest", [0, 1, 2]),
        ("mode=key&key=user-1", [2, 1, 0]),
        ("mode=key&key=757365722d31&key_format=hex&home=1", [2, 1, 0]),
        ("mode=key&key=user-2", []),
        ("mode=header&header=h", [2, 1, 0]),
        ("mode=header&header=h&header_value=w", []),
        ("mode=field&field=total&value=2", [1]),
        ("mode=field&field=total&comparison=%3E%3D&value=2", [2, 1]),
        ("mode=text&text=%22total%22%3A+3", [2]),
        ("mode=time&since=2020-01-01", [0, 1, 2]),
        ("mode=time&since=2999-01-01T00:00Z", []),
        ("until=1577836800000", []),
    ],
)
def test_records_are_found(cluster: Cluster, query: str, offsets: list[int]) -> None:
    with console(cluster) as client:
        page = ok(client, f"/topics/orders/records?{query}")
    assert [int(found) for found in re.findall(r'href="/topics/orders/records/\d/(\d+)"', page)] == offsets
    assert f"{len(offsets)} record" in page


def test_records_from_an_offset_are_found(cluster: Cluster) -> None:
    with console(cluster) as client:
        links = re.findall(r'href="(/topics/orders/records/\d/1)"', ok(client, "/topics/orders/records"))
        partition = links[0].split("/")[-2]
        page = ok(client, f"/topics/orders/records?mode=offset&partition={partition}&offset=1")
        assert re.findall(r'href="/topics/orders/records/\d/(\d+)"', page) == ["1", "2"]


@pytest.mark.parametrize(
    ("query", "says"),
    [
        ("mode=x", "mode: got"),
        ("partition=2", "expected 0 to 1"),
        ("limit=0", "expected 1 to 500"),
        ("mode=time", "since: expected a time"),
        ("since=yesterday", "got &#39;yesterday&#39;"),
        ("mode=key&key=xy&key_format=hex", "hexadecimal"),
        ("mode=header", "header: got nothing"),
        ("mode=field&field=a&comparison=like", "comparison: got"),
        ("mode=field&field=a%22b&value=1", "with a quote"),
    ],
)
def test_a_search_that_makes_no_sense_is_told(cluster: Cluster, query: str, says: str) -> None:
    with console(cluster) as client:
        assert says in ok(client, f"/topics/orders/records?{query}", 400)


def test_a_transactional_id_has_the_entries_of_its_log() -> None:
    cluster = a_cluster()
    a_topic(cluster)
    with Producer(cluster=cluster, transactional_id="tx") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("orders", b"1")
        producer.commit_transaction()
    with console(cluster) as client:
        page = text_of(ok(client, "/transaction?id=tx"))
        assert "Number State Epoch Written Records in Offsets of Why 3 CompleteCommit 0" in page
        assert re.search(r" 2 PrepareCommit 0 \S+ \S+ orders \(1 file\) 1 Empty 0", page)
        assert "Older ones" not in page
        cluster.store.put(transaction_entry("tx", 2), b"{")
        page = text_of(ok(client, "/transaction?id=tx"))
    assert "State CompleteCommit" in page  # the newest entry says so
    assert "corrupt" in page
    assert "PrepareCommit" not in page


@pytest.mark.slow
def test_hostile_records_and_names_do_not_become_html() -> None:
    cluster = a_cluster()
    a_topic(cluster)
    group = "<img src=x onerror=alert(1)>/../'\""
    produce(cluster, HOSTILE, b'{"%s": "%s"}' % (HOSTILE[:20], HOSTILE[:20]), key=HOSTILE, headers=[("<b>", HOSTILE)])
    consume(cluster, group, 1)
    with Producer(cluster=cluster, transactional_id=group) as producer:
        producer.init_transactions()
    text = quote(HOSTILE.decode())
    with console(cluster) as client:
        for path in (
            "/",
            f"/?q={text}&sort={text}",
            "/topics/orders",
            "/topics/orders/records",
            "/topics/orders/records?decode=text",
            f"/topics/orders/records?mode=key&key={text}",
            f"/topics/orders/records?mode=text&text={text}",
            f"/topics/orders/records?mode=header&header={text}&header_value={text}",
            "/topics/orders/records/0/0",
            "/topics/orders/records/0/0?decode=hex",
            f"/group?id={quote(group)}",
            f"/transaction?id={quote(group)}",
            f"/sql?q={quote('select key, value, decode(value) as x, headers from orders')}",
        ):
            assert_harmless(ok(client, path))
        for path in (f"/topics/orders/records?mode={text}", f"/sql?q={text}", f"/topics/{text}", f"/{text}"):
            assert_harmless(client.get(path).text)
        found = ok(client, f"/topics/orders/records?mode=key&key={text}")
        assert "2 records found" in found


def test_one_record_is_shown_whole(cluster: Cluster) -> None:
    produce(cluster, b"\x00\xff" * 40, "ä".encode() * 30_000, key=b"k")
    with console(cluster) as client:
        page = ok(client, "/topics/orders/records?mode=key&key=k")
        links = re.findall(r'href="(/topics/orders/records/\d/\d+)"', page)
        assert "60.0 KB" in page
        text = ok(client, links[0])
        assert "ä" * 30_000 in text
        assert "000010  00 ff 00" in ok(client, links[1])
        raw = client.get(f"{links[1]}/raw")
        assert (raw.content, raw.headers["content-type"]) == (b"\x00\xff" * 40, "application/octet-stream")
        assert raw.headers["content-disposition"].startswith("attachment")
        assert client.get(f"{links[1]}/raw?part=key").content == b"k"
        assert "no record at offset 999" in ok(client, "/topics/orders/records/0/999", 404)
        assert "no partition 9" in ok(client, "/topics/orders/records/9/0", 404)


def test_typed_values_are_shown_and_found_by_field() -> None:
    cluster = a_cluster()
    a_topic(cluster, value_schema=pa.schema([("total", pa.int64()), ("key", pa.string())]))
    produce(cluster, {"total": 1, "key": "a"}, {"total": 2, "key": "b"})
    with console(cluster) as client:
        page = ok(client, "/topics/orders/records?mode=field&field=total&comparison=%3E&value=1")
        assert "total&#34;: 2" in page
        assert "1 ruled out by the log" in page
        assert "value_key" in ok(client, "/topics/orders/records?mode=field&field=key&value=a")
        assert "1 record found" in ok(client, "/topics/orders/records?mode=field&field=key&comparison=contains&value=a")
        assert "is int64" in ok(client, "/topics/orders/records?mode=field&field=total&value=x", 400)


def test_a_group_shows_lag_and_leads_to_the_next_record(cluster: Cluster) -> None:
    consume(cluster, "billing", 1)
    with console(cluster) as client:
        page = ok(client, "/group?id=billing")
        assert "mode=offset&amp;partition=" in page
        assert "Empty, generation" in text_of(page)


def test_files_are_listed_and_lead_to_their_records(cluster: Cluster) -> None:
    with console(cluster) as client:
        page = ok(client, "/topics/orders/files")
        assert "3 files with" in text_of(page)
        assert page.count('<th scope="row"') == 3
        assert "mode=offset&amp;partition=" in page
        assert ok(client, "/topics/orders/files?partition=x", 400)
        assert ok(client, "/topics/orders/files?partition=99", 404)


@pytest.mark.slow
def test_many_files_and_commits_have_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sparklog.console.pages._COMMITS", 2)
    monkeypatch.setattr("sparklog.console.views.PAGE_ROWS", 2)
    cluster = a_cluster()
    a_topic(cluster)
    produce(cluster, b"a", b"b", b"c")
    with console(cluster) as client:
        page = ok(client, "/topics/orders")
        assert 'rel="next" href="/topics/orders?upto=1#commits"' in page
        older = text_of(ok(client, "/topics/orders?upto=1"))
        assert "Commits up to version 1" in older
        assert "CREATE TOPIC" in older
        assert 'rel="next" href="/topics/orders/files?page=2"' in ok(client, "/topics/orders/files")
        last = ok(client, "/topics/orders/files?page=2")
        assert 'rel="prev"' in last
        assert "page 2 of 2" in text_of(last)


@pytest.mark.slow
def test_a_commit_of_a_transaction_says_whose(cluster: Cluster) -> None:
    with Producer(cluster=cluster, transactional_id="<b>tx") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("orders", b"x")
        producer.commit_transaction()
    with console(cluster) as client:
        page = ok(client, "/topics/orders")
        assert "transaction of &lt;b&gt;tx" in re.sub(r"<[^>]*>", "", page)
        assert 'href="/transaction?id=%3Cb%3Etx"' in page
        assert_harmless(page)


@pytest.mark.slow
def test_a_typed_topic_shows_its_fields_and_what_changed_between_versions() -> None:
    cluster = a_cluster()
    a_topic(cluster, value_schema=pa.schema([("total", pa.int64()), ("by", pa.struct([("<b>", pa.string())]))]))
    admin = Admin(cluster)
    admin.alter_configs({"orders": {"retention.ms": "5000"}})
    wider = pa.schema([("total", pa.int64()), ("by", pa.struct([("<b>", pa.string())])), ("at", pa.date32())])
    admin.alter_value_schema("orders", wider)
    with console(cluster) as client:
        page = ok(client, "/topics/orders")
        assert "by.&lt;b&gt; string at date" in text_of(page)
        assert_harmless(page)
        compared = ok(client, "/topics/orders/compare?from=0&to=2")
        assert "retention.ms 604800000 5000" in text_of(compared)
        assert "Schema 1 Schema 2 at – date" in text_of(compared)
        assert "None has changed." in text_of(ok(client, "/topics/orders/compare?from=1&to=2"))
        assert "schemas" in client.get("/api/topics/orders").json()


def test_what_a_page_is_read_by_has_names(cluster: Cluster) -> None:
    """Columns, and buttons that stand in a row for each setting; the order of a list is told, too."""
    with console(cluster, allow_writes=True, users={"ann": hash_password("pw")}) as client:
        client.auth = ("ann", "pw")
        pages = [ok(client, path) for path in ("/", "/topics/orders", "/topics/orders/files", "/sql")]
        assert [page for page in pages if re.search(r"<th[^>]*></th>", page)] == []
        assert 'aria-label="Set retention.ms"' in pages[1]
        assert re.findall(r'aria-sort="(\w+)"><a href="[^"]*"', pages[0]) == ["ascending", "descending"]
        by_size = ok(client, "/?sort=bytes")
        assert re.findall(r'aria-sort="(\w+)"><a href="/\?sort=bytes#topics', by_size) == ["descending"]


def test_the_overview_tells_what_maintenance_did(cluster: Cluster) -> None:
    with console(cluster) as client:
        assert "No run has told yet what it did." in text_of(ok(client, "/"))
    produce(cluster, *[b"x"] * 10)
    a_topic(cluster, "broken")
    produce(cluster, *[b"x"] * 12, topic="broken")
    store = cluster.store
    store.delete([one.path for one in store.list("topics/broken/partition=0/")])
    assert maintain(cluster).failures
    with console(cluster) as client:
        page = text_of(ok(client, "/"))
        assert re.search(r"0\.0 s ago .* 2 of 2 merged \d+ files into 1 orders 1 topic : broken", page)
    for hostile in (b"", b"[" * 100_000, b'{"format": 1, "cluster_id": "<b>", "runs": []}'):
        store.put("maintenance/runs.json", hostile)
        with console(cluster) as client:
            page = ok(client, "/")
            assert "What the last runs did is unknown because of an error: " in page
            assert "<b>" not in page


@pytest.mark.parametrize(("ahead_ms", "told"), [(0, "0.0 s ago"), (7 * 3_600_000, "7 h ahead of this clock")])
def test_a_run_by_another_clock_is_told_in_words(ahead_ms: int, told: str) -> None:
    here = watched()
    here.topic("t")
    here.append(a_writer(here.cluster.topic_log("t"), topic="t"), "x")
    run = a_run(ended_ms=here.clock.now_ms() + ahead_ms, topic_count=3, unchanged_count=3)
    note_run(here.cluster, run)
    with console(here.cluster) as client:
        page = text_of(ok(client, "/"))
    assert f" {told} 0.0 s 0 of 3 nothing" in page
    assert "ahead ago" not in page


def test_schemas_of_an_earlier_topic_are_not_taken_for_those_of_the_present_one() -> None:
    cluster = a_cluster()
    a_topic(cluster, value_schema=pa.schema([("total", pa.int64())]))
    admin = Admin(cluster)
    admin.delete_topics(["orders"])
    a_topic(cluster, value_schema=pa.schema([("other", pa.string())]))
    admin.alter_value_schema("orders", pa.schema([("other", pa.string()), ("at", pa.date32())]))
    newest = admin.describe_topics(["orders"])[0].delta_version
    with console(cluster) as client:
        across = text_of(ok(client, f"/topics/orders/compare?from=0&to={newest}"))
        assert "Not compared: the schemas of an earlier topic" in across
        assert "date" not in across
        present = text_of(ok(client, f"/topics/orders/compare?from={newest - 1}&to={newest}"))
        assert "Schema 1 Schema 2 at – date" in present


def test_versions_are_compared(cluster: Cluster) -> None:
    with console(cluster) as client:
        page = text_of(ok(client, "/topics/orders/compare?from=1&to=3"))
        assert "Commits: 2 WRITE" in page
        assert "version 4 of topic" in ok(client, "/topics/orders/compare?from=1&to=99")
        assert "the older first" in ok(client, "/topics/orders/compare?from=3&to=1")
        assert ok(client, "/topics/orders/compare?from=x", 400)


@pytest.mark.slow
def test_records_are_shown_as_of_an_older_version(cluster: Cluster) -> None:
    """Version 1 and 2 have one commit of a record each behind the creation."""
    with console(cluster) as client:
        page = ok(client, "/topics/orders/records?version=2")
        links = re.findall(r'href="(/topics/orders/records/\d/\d+\?version=2)"', page)
        assert len(links) == 2
        assert "The topic as of version 2." in text_of(page)
        assert 'href="/sql?q=' in page
        assert "versions=orders%3D2" in page
        assert "in version 2 of the topic" in text_of(ok(client, links[0]))
        assert len(re.findall(r'href="/topics/orders/records/\d/\d+"', ok(client, "/topics/orders/records"))) == 3
        assert "n 2 1 row." in text_of(ok(client, "/sql?q=select count(*) as n from orders&versions=orders=2"))
        lines = client.get("/api/topics/orders/records?version=1").text.splitlines()
        assert len(lines) == 2  # the last one is of the search
        assert client.get("/api/sql?q=select 1 as n from orders&versions=orders%3D1").text.splitlines() == ['{"n": 1}']


@pytest.mark.slow
def test_an_older_version_is_searched_by_the_fields_that_it_had() -> None:
    """A field that came since isn't there: it is named, not passed on to DuckDB. So it is in the statement."""
    cluster = a_cluster()
    a_topic(cluster, value_schema=pa.schema([("total", pa.int64())]))
    produce(cluster, {"total": 1}, {"total": 2})
    Admin(cluster).alter_value_schema("orders", pa.schema([("total", pa.int64()), ("note", pa.string())]))
    produce(cluster, {"total": 3, "note": "here"})

    def asked(version: str, field: str, comparison: str, value: str) -> tuple[int, str]:
        given = {"mode": "field", "field": field, "comparison": comparison, "value": value, "version": version}
        answer = client.get("/api/topics/orders/records", params=given)
        assert client.get("/topics/orders/records", params=given).status_code == answer.status_code
        return answer.status_code, answer.text

    with console(cluster) as client:
        for comparison in ("=", "contains"):
            status, text = asked("2", "note", comparison, "here")
            assert (status, "have no field 'note'" in text) == (400, True)
            assert asked("", "note", comparison, "here")[1].count('"value"') == 1
            assert asked("2", "total", comparison, "1")[1].count('"value"') == 1


def test_of_a_topic_that_was_made_anew_no_earlier_version_is_shown(cluster: Cluster) -> None:
    admin = Admin(cluster)
    admin.delete_topics(["orders"])
    paths = [f"{kind}/topics/orders/records?version=2" for kind in ("", "/api")]
    paths += ["/topics/orders/records/0/0?version=2", "/topics/orders/records/0/0/raw?version=2"]
    paths += ["/api/sql?q=select 1 from orders&versions=orders=2"]
    with console(cluster) as client:
        for path in paths:
            assert "was deleted" in ok(client, path, 404)
    a_topic(cluster, partitions=3)
    with console(cluster) as client:
        for path in paths:
            assert "that is of another topic of this name" in ok(client, path, 400)
        # So no page leads there: versions 0 to 4 are of the earlier topic and its end, 5 is the new topic's.
        produce(cluster, b"new")
        page = ok(client, "/topics/orders")
        assert re.findall(r"/records\?version=(\d+)", page) == ["6", "5"]
        assert page.count("of an earlier topic of this name") == 5
        first = ok(client, "/topics/orders/compare?from=2&to=6")
        assert re.findall(r"/records\?[^\"]*", first) == ["/records?version=6"]
        assert "Version 2: of an earlier topic of this name" in text_of(first)
        both = ok(client, "/topics/orders/compare?from=2&to=4")
        assert re.findall(r"/records\?", both) == []
        assert "Version 2 and version 4: of an earlier topic" in text_of(both)
        told = client.get("/api/topics/orders/commits?limit=3&upto=6").json()
        assert [one["is_of_earlier"] for one in told["commits"]] == [False, False, True]


def test_a_version_that_is_not_there_is_told(cluster: Cluster) -> None:
    with console(cluster) as client:
        assert "the newest is 3" in ok(client, "/topics/orders/records?version=9", 400)
        assert "version: got" in ok(client, "/topics/orders/records?version=x", 400)
        assert "TOPIC=NUMBER" in ok(client, "/sql?q=select 1&versions=orders", 400)
        assert "among the topics" in text_of(ok(client, "/sql?q=select 1&versions=orders%3D1"))
        assert client.get("/api/topics/orders/records?version=-1").status_code == 400


def test_a_record_of_an_older_version_is_not_produced_again(cluster: Cluster) -> None:
    with console(cluster, allow_writes=True, users={"ann": hash_password("pw")}) as client:
        client.auth = ("ann", "pw")
        assert "Produce it again" in ok(client, "/topics/orders/records/0/0")
        assert "Produce it again" not in ok(client, "/topics/orders/records/0/0?version=3")


def test_sql_is_shown_cut_and_refused(cluster: Cluster) -> None:
    with console(cluster) as client:
        page = text_of(ok(client, "/sql?q=select count(*) as n from orders"))
        assert "n 3 1 row." in page
        assert "1,000 rows; there may be more" in ok(client, "/sql?q=select * from range(5000)")
        assert "Error" in ok(client, "/sql?q=select nonsense")
        assert "only read" in ok(client, "/sql?q=create table x as select 1")
        assert "disabled by configuration" in ok(client, "/sql?q=select * from read_text('/etc/passwd')")


def test_what_is_not_there_is_told(cluster: Cluster) -> None:
    with console(cluster) as client:
        assert "unknown topic" in ok(client, "/topics/nope", 404)
        assert "unknown topic" in ok(client, "/topics/nope/records", 404)
        assert "no such page" in ok(client, "/nope", 404)
        assert ok(client, "/transaction?id=nope", 404)
        assert "Dead" in ok(client, "/group?id=nope")


def test_a_file_that_is_gone_is_told_in_the_page() -> None:
    class Gone(WrappedStore):
        def read_many(self, paths: Sequence[str]) -> Sequence[bytes | None]:
            found = zip(paths, self._store.read_many(paths), strict=True)
            return [None if path.endswith(".parquet") else data for path, data in found]

    cluster = a_cluster(Gone(MemoryStore()))
    a_topic(cluster)
    produce(cluster, b"a")
    with console(cluster) as client:
        page = ok(client, "/topics/orders/records")
        assert "files of that version were deleted since" in page
        assert "0 records found; the search was ended" in text_of(page)
