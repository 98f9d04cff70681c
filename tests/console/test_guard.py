"""Nobody is answered who shouldn't be, and no other site makes a browser do anything here."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from sparklog.console import ConsoleSettings, hash_password, parse_users
from sparklog.console.failed_logins import FailedLogins
from sparklog.console.passwords import Passwords
from sparklog.errors import InvalidArgumentError
from sparklog.testing import ManualClock
from tests.console.support import a_cluster, a_topic, console, produce

USERS = {"ann": hash_password("s3cret: ä")}


def test_every_answer_forbids_foreign_scripts_and_frames() -> None:
    with console(a_cluster()) as client:
        for path in ("/", "/nope", "/api/topics", "/metrics", "/static/console.js", "/sql?q=select%201"):
            headers = client.get(path).headers
            assert "script-src 'self'" in headers["content-security-policy"], path
            assert "unsafe" not in headers["content-security-policy"]
            assert headers["x-content-type-options"] == "nosniff"
            assert headers["x-frame-options"] == "DENY"


def test_pages_have_no_script_or_style_of_their_own() -> None:
    with console(a_cluster()) as client:
        page = client.get("/").text
    assert "<style" not in page
    assert "style=" not in page
    assert "javascript:" not in page


@pytest.mark.parametrize("host", ["evil.example", "localhost.evil.example", "10.0.0.1:8080", ""])
def test_another_name_is_not_answered(host: str) -> None:
    with console(a_cluster()) as client:
        assert client.get("/", headers={"Host": host}).status_code == 421
        assert client.get("/api/topics", headers={"Host": host}).status_code == 421
        assert client.get("/", headers={"Host": "[::1]:8080"}).status_code == 200
    with console(a_cluster(), hosts=None) as client:
        assert client.get("/", headers={"Host": host}).status_code == 200


def test_other_sites_pages_are_not_answered() -> None:
    with console(a_cluster()) as client:
        foreign = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}
        assert client.get("/api/topics", headers=foreign).status_code == 403
        link = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}
        assert client.get("/", headers=link).status_code == 200
        for headers in (link, {"Origin": "http://evil.example"}, {"Origin": "null"}):
            assert client.post("/mcp", json={}, headers=headers).status_code == 403
            assert client.post("/group/reset", data={}, headers=headers).status_code == 403


@pytest.mark.slow
def test_a_password_is_asked_for_everywhere_but_by_probes() -> None:
    with console(a_cluster(), users=USERS) as client:
        for path in ("/", "/api/topics", "/metrics", "/static/console.js", "/nope"):
            answer = client.get(path)
            assert (answer.status_code, answer.headers["www-authenticate"][:5]) == (401, "Basic"), path
            assert "script-src" in answer.headers["content-security-policy"]
        assert client.post("/mcp", json={}).status_code == 401
        assert client.get("/healthz").status_code == 200
        assert client.get("/", auth=("ann", "s3cret: ä")).status_code == 200
        for wrong in (("ann", "s3cret"), ("bob", "s3cret: ä"), ("", ""), ("ann", USERS["ann"])):
            assert client.get("/", auth=wrong).status_code == 401
        for header in ("Basic", "Basic !", "Basic /////w==", "Basic YW5u", "Bearer x"):
            assert client.get("/", headers={"Authorization": header}).status_code == 401


@pytest.mark.slow
def test_a_login_that_fails_is_logged_without_the_password(caplog: pytest.LogCaptureFixture) -> None:
    with console(a_cluster(), users=USERS) as client:
        client.get("/")  # a browser's first request: nobody tries to log in
        client.get("/", auth=("ann", "s3cret: ä"))
        assert "login" not in caplog.text
        client.get("/", auth=("bob\n" + "x" * 300, "hunter2"))
    [entry] = [one for one in caplog.records if "login" in one.getMessage()]
    user = "bob\n" + "x" * 196 + "…"
    assert (entry.levelname, entry.getMessage()) == ("WARNING", f"login as {user!r} from testclient failed")
    assert entry.__dict__["sparklog"] == {"user": user, "client": "testclient"}
    assert "hunter2" not in caplog.text


def test_of_many_logins_that_fail_some_are_logged_and_the_others_counted(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    failed = FailedLogins(clock)
    for _ in range(15):
        failed.note("10.0.0.7", "ann")
    assert len(caplog.records) == 10
    clock.advance(60_000)
    failed.note("10.0.0.7", "bob")
    assert [one.getMessage() for one in caplog.records[10:]] == [
        "5 more logins failed",
        "login as 'bob' from 10.0.0.7 failed",
    ]
    assert {one.levelno for one in caplog.records} == {logging.WARNING}


def test_a_proxys_header_counts_only_where_the_proxy_is() -> None:
    known: dict[str, Any] = {"trust_header": "X-User", "trusted_proxies": frozenset(["testclient"])}
    with console(a_cluster(), **known) as client:
        assert client.get("/").status_code == 401
        assert "ann ·" in client.get("/", headers={"X-User": "ann"}).text
    with console(a_cluster(), **{**known, "trusted_proxies": frozenset(["10.0.0.1"])}) as client:
        assert client.get("/", headers={"X-User": "ann"}).status_code == 401


def test_writing_without_a_login_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="asks who is there"):
        ConsoleSettings(allow_writes=True)


@pytest.mark.slow
def test_users_are_read_from_lines() -> None:
    line = f"ann:{hash_password('x')}"
    assert parse_users(f"# users\n\n{line}\n") == {"ann": line[4:]}
    for text in ("ann", "ann:x", "ann:plain$a$b", "ann:scrypt$%$b", ":scrypt$YQ==$YQ==", f"{line}\n{line}"):
        with pytest.raises(InvalidArgumentError, match="line"):
            parse_users(text)
    with pytest.raises(InvalidArgumentError, match="empty"):
        hash_password("")


@pytest.mark.slow
def test_a_password_that_was_right_is_not_hashed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    passwords = Passwords(USERS)
    assert passwords.check("ann", "s3cret: ä")
    monkeypatch.setattr("sparklog.console.passwords._hashed", None)
    assert passwords.check("ann", "s3cret: ä")
    with pytest.raises(TypeError):
        passwords.check("ann", "other")


MASKS = frozenset(["ssn", "trace", "key"])


@pytest.mark.slow
def test_masked_fields_are_shown_nowhere() -> None:
    cluster = a_cluster()
    a_topic(cluster)
    value = b'{"ssn": "123-45", "a": [{"SSN": "123-45"}], "b": "fine"}'
    produce(
        cluster, value, b"text 123-45", b"\xff123-45", key=b"123-45", headers=[("Trace", b"123-45"), ("ok", b"fine")]
    )
    with console(cluster, masks=MASKS) as client:
        for path in (
            "records",
            "records?decode=text",
            "records?decode=hex",
            "records/0/0",
            "records/0/1",
            "records/0/2",
        ):
            page = client.get(f"/topics/orders/{path}")
            assert page.status_code == 200
            assert "123-45" not in page.text, path
        assert "fine" in client.get("/topics/orders/records").text
        lines = client.get("/api/topics/orders/records").text
        assert "123-45" not in lines
        assert "fine" in lines
        for path in (
            "/topics/orders/records/0/0/raw",
            "/topics/orders/records/0/0/raw?part=key",
            "/topics/orders/records?mode=key&key=123-45",
            "/topics/orders/records?mode=header&header=TRACE&header_value=1",
            "/topics/orders/records?mode=field&field=a.ssn&value=1",
            "/api/sql?q=select+value+from+orders",
        ):
            assert client.get(path).status_code == 400, path
        found = client.get("/api/topics/orders/records?mode=text&text=123").text
        assert '"offset"' not in found
        page = client.get("/sql?q=select+decode(value)+from+orders").text
        assert "SQL is off" in page
        assert client.get("/sql?q=select+value+from+orders&format=csv").text == page or "123-45" not in page
        tools = client.post("/mcp", json={"jsonrpc": "2.0", "id": 1, "method": "tools/list"}).json()["result"]["tools"]
        assert "sql" not in [tool["name"] for tool in tools]
