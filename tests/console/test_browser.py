"""A real browser shows the pages: no error in its console, what is live comes, hostile records run nothing; and who
sees little, or has no mouse, gets along."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from docs.site.screenshots import CHROMIUM, Browser, console_of
from sparklog.admin import Admin
from sparklog.producer import Producer

pytestmark = pytest.mark.slow

HOSTILE = b"<script>document.title='ran'</script><img src=x onerror=\"document.title='ran'\">"
PAGES = ("/", "/topics/orders", "/topics/orders/records", "/topics/orders/files", "/topics/orders/records/0/0", "/sql")
NARROW = 400
LEAST_CONTRAST = 4.5
"""Of text and its background. Source: WCAG 2.2, criterion 1.4.3."""


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where a console of a cluster with hostile records answers; the tests only look at it."""
    if CHROMIUM is None:
        pytest.skip("needs Chromium: apt-get install chromium")
    cluster = tmp_path_factory.mktemp("console") / "cluster"
    Admin(cluster).create_topics(["orders"])
    with Producer(cluster=cluster) as producer:
        for _ in range(3):
            producer.send("orders", HOSTILE, key=HOSTILE, headers=[("<b>", HOSTILE)]).get(60)
    with console_of(cluster, "--interval", "1") as found:
        yield found


@pytest.fixture(scope="module")
def browser(address: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with Browser(tmp_path_factory.mktemp("browser") / "driven") as found:
        yield found


def shown(address: str, path: str, folder: Path) -> tuple[str, str]:
    """What the browser has made of a page after some seconds, and what its console said."""
    assert CHROMIUM is not None
    command = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder}"]
    command += ["--enable-logging=stderr", "--v=0", "--virtual-time-budget=5000", "--dump-dom", f"{address}{path}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=90)
    said = "\n".join(line for line in done.stderr.splitlines() if ":CONSOLE" in line)
    return done.stdout, said


def test_pages_are_whole_and_run_nothing_of_records(address: str, tmp_path: Path) -> None:
    for path, expected in (
        ("/", "orders"),
        ("/topics/orders", "<canvas"),  # the chart was drawn
        ("/topics/orders/records", "3 records found"),
        ("/topics/orders/records/0/0", "Headers"),
        ("/sql?q=select%20key%20from%20orders", "3 rows"),
    ):
        page, said = shown(address, path, tmp_path / "profile")
        assert expected in page, path
        assert said == "", path
        assert "<title>ran" not in page
    assert 'data-for="offset" hidden=""' in shown(address, "/topics/orders/records", tmp_path / "profile")[0]


def test_a_narrow_window_needs_no_scrolling_to_the_side(address: str, browser: Browser) -> None:
    for path in PAGES:
        browser.open(f"{address}{path}", width=NARROW, height=800)
        assert browser.evaluate("document.documentElement.scrollWidth") <= NARROW, path


def test_text_can_be_told_from_its_background_in_light_and_dark(address: str, browser: Browser) -> None:
    contrast = """(() => {
      const light = text => {
        const part = value => value <= 0.03928 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
        const [red, green, blue] = text.match(/[\\d.]+/g).map(one => part(one / 255));
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
      };
      const behind = getComputedStyle(document.body).backgroundColor;
      const shown = ["body", "main a", ".quiet", "th"].map(name => document.querySelector(name));
      return shown.map(one => {
        const [dark, bright] = [light(getComputedStyle(one).color), light(behind)].sort((a, b) => a - b);
        return (bright + 0.05) / (dark + 0.05);
      });
    })()"""
    backgrounds = set()
    for dark in (False, True):
        browser.open(f"{address}/topics/orders", dark=dark)
        backgrounds.add(browser.evaluate("getComputedStyle(document.body).backgroundColor"))
        found = browser.evaluate(contrast)
        assert len(found) == 4
        assert min(found) >= LEAST_CONTRAST
    assert len(backgrounds) == 2


def test_keys_alone_lead_through_a_page_and_the_focus_is_seen(address: str, browser: Browser) -> None:
    browser.open(f"{address}/")
    browser.press_tab()
    assert browser.evaluate("document.activeElement.textContent") == "Skip to the content"
    reached, outlines = [], []
    for _ in range(12):
        browser.press_tab()
        reached.append(browser.evaluate("document.activeElement.textContent.trim() || document.activeElement.name"))
        outlines.append(browser.evaluate("getComputedStyle(document.activeElement).outlineStyle"))
        if reached[-1] == "orders":
            break
    assert reached[:3] == ["sparklog", "Topics", "Groups"]
    assert "q" in reached  # the filter
    assert "none" not in outlines
    browser.evaluate("document.querySelector('main th a[href=\"/topics/orders\"]').focus()")
    browser.follow()
    assert browser.evaluate("document.querySelector('h1').textContent") == "orders"


def test_everything_that_is_filled_in_or_pressed_has_a_name(address: str, browser: Browser) -> None:
    unnamed = """[...document.querySelectorAll("input:not([type=hidden]), select, textarea, button, a")].filter(one =>
      !(one.labels && one.labels.length && [...one.labels].some(label => label.textContent.trim()))
      && !one.textContent.trim() && !one.getAttribute("aria-label")).map(one => one.outerHTML)"""
    for path in PAGES:
        browser.open(f"{address}{path}")
        assert browser.evaluate(unnamed) == [], path
        assert (
            browser.evaluate("[...document.querySelectorAll('th')].filter(one => !one.textContent.trim()).length") == 0
        )
        assert browser.evaluate("document.documentElement.lang") == "en"
        assert browser.evaluate("document.querySelectorAll('h1').length") == 1, path
