"""Databases for tests: SQLite, and servers of PostgreSQL and MariaDB where their programs are installed."""

from __future__ import annotations

import glob
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.s3_server import free_port

__all__ = ["connection_lost_at_commits", "database_url", "mariadb", "postgresql"]

_START_S = 60


@contextmanager
def _folder(owner: str | None) -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="sparklog-database-"))
    if owner is not None:
        shutil.chown(folder, owner)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _running(command: list[str], folder: Path, url: str, end_by: signal.Signals = signal.SIGTERM) -> Iterator[str]:
    with (folder / "server.log").open("wb") as log, subprocess.Popen(command, stdout=log, stderr=log) as server:
        try:
            _wait_for(url, server, folder / "server.log")
            yield url
        finally:
            server.send_signal(end_by)
            try:
                server.wait(60)
            except subprocess.TimeoutExpired:
                server.kill()


def _wait_for(url: str, server: subprocess.Popen[bytes], log: Path) -> None:
    import sqlalchemy as sa  # every test's process imports this module, and few need a database

    engine = sa.create_engine(url)
    deadline = time.monotonic() + _START_S
    try:
        while True:
            try:
                engine.connect().close()
                return
            except sa.exc.DBAPIError:
                if server.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(f"the server didn't start: {log.read_text()[-2_000:]}") from None
                time.sleep(0.1)
    finally:
        engine.dispose()


def _as_user(name: str) -> tuple[list[str], str | None]:
    """What runs a command as a user where this process is root's, which PostgreSQL refuses."""
    if os.getuid() != 0:
        return [], None
    pwd.getpwnam(name)
    return ["setpriv", f"--reuid={name}", f"--regid={name}", "--clear-groups"], name


@contextmanager
def _postgresql_server() -> Iterator[str]:
    """SQLAlchemy's URL of a PostgreSQL server that lives as long."""
    found = max(glob.glob("/usr/lib/postgresql/*/bin/postgres"), default=shutil.which("postgres"))
    if found is None:
        pytest.skip("there is no PostgreSQL: apt-get install postgresql")
    programs = Path(found).parent
    prefix, owner = _as_user("postgres")
    with _folder(owner) as folder:
        data, port = folder / "data", free_port()
        init = [*prefix, str(programs / "initdb"), "-D", str(data), "-U", "tester", "-A", "trust", "-N", "-E", "UTF8"]
        subprocess.run(init, check=True, capture_output=True, cwd=folder)
        command = [*prefix, str(programs / "postgres"), "-D", str(data), "-p", str(port), "-k", str(folder), "-F"]
        url = f"postgresql+psycopg://tester@127.0.0.1:{port}/postgres"
        with _running(command, folder, url, end_by=signal.SIGINT):  # which waits for no session
            yield url


@contextmanager
def _mariadb_server() -> Iterator[str]:
    """SQLAlchemy's URL of a MariaDB server that lives as long."""
    server, install = shutil.which("mariadbd") or shutil.which("/usr/sbin/mariadbd"), shutil.which("mariadb-install-db")
    if server is None or install is None:
        pytest.skip("there is no MariaDB: apt-get install mariadb-server")
    with _folder(None) as folder:
        data, port, user = folder / "data", free_port(), pwd.getpwuid(os.getuid()).pw_name
        given = ["--no-defaults", f"--datadir={data}", f"--user={user}", "--auth-root-authentication-method=normal"]
        for _ in range(2):  # on a busy machine it failed once, and said why to nobody
            done = subprocess.run([install, *given], check=False, capture_output=True, text=True)
            if done.returncode == 0:
                break
            shutil.rmtree(data, ignore_errors=True)
        else:
            raise RuntimeError(f"mariadb-install-db failed twice:\n{done.stdout}\n{done.stderr}")
        command = [server, "--no-defaults", f"--datadir={data}", f"--user={user}", f"--port={port}"]
        command += ["--bind-address=127.0.0.1", f"--socket={folder}/socket", f"--pid-file={folder}/pid"]
        with _running(command, folder, f"mysql+pymysql://root@127.0.0.1:{port}/test?charset=utf8mb4") as url:
            yield url


@pytest.fixture(scope="session")
def postgresql() -> Iterator[str]:
    """The URL of a PostgreSQL server; skips where there is none."""
    with _postgresql_server() as url:
        yield url


@pytest.fixture(scope="session")
def mariadb() -> Iterator[str]:
    """The URL of a MariaDB server; skips where there is none."""
    with _mariadb_server() as url:
        yield url


@pytest.fixture(
    params=["sqlite", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("postgresql", "mariadb"))],
)
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of a database of each kind that is tested."""
    return f"sqlite:///{tmp_path}/a.db" if request.param == "sqlite" else str(request.getfixturevalue(request.param))


@contextmanager
def connection_lost_at_commits(engine: Any, *, is_committed: bool) -> Iterator[list[int]]:
    """Each other commit, the first among them, ends with a lost connection: after it took effect or before.

    Yields:
        The number of commits so far, as the only item.
    """
    from sqlalchemy import event  # as above

    dialect, counts = engine.dialect, [0]
    commit = dialect.do_commit

    def lost_commit(connection: Any) -> None:
        counts[0] += 1
        if counts[0] % 2 == 0:
            commit(connection)
            return
        if is_committed:
            commit(connection)
        raise dialect.dbapi.OperationalError("the connection is lost")

    def is_lost(context: Any) -> None:
        context.is_disconnect = True  # SQLAlchemy closes the connection, and the database rolls back what is open

    dialect.do_commit = lost_commit
    event.listen(engine, "handle_error", is_lost)
    try:
        yield counts
    finally:
        event.remove(engine, "handle_error", is_lost)
        dialect.do_commit = commit
