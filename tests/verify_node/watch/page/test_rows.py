"""The page describes clients in each state, and drafts, from made-up snapshots; and it explains its labels.

Nothing old is shown as if it were new.
"""

import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace
from selenium.webdriver import Chrome
from selenium.webdriver.common.by import By

from tests.verify_node.watch.page.browser import browser, need_browser, resize, served, wait
from tests.verify_node.watch.page.snapshots import EMPTY, WRITES, make_app
from verify_node.core.client_events import ClientEvent
from verify_node.watch.app import PAGE, Feed
from verify_node.watch.snapshot import Snapshot, Source

pytestmark = pytest.mark.nodes
need_browser()

NOTHING = "\N{EN DASH}"
NOW = 1e9

ROWS = (
    replace(WRITES, name="writes", since=NOW - 60, may_draft=31),
    replace(WRITES, name="writes-too", since=NOW - 60, may_draft=24, num_sessions=1),
    replace(WRITES, name="rests", since=NOW - 60, activity="idle", num_sessions=0, moved=None),
    replace(WRITES, name="is-stuck", since=NOW - 60, activity="stalled", moved=NOW - 8),
)

EVENTS = (
    ClientEvent(NOW, "refused", "", "hello_first", 2),
    ClientEvent(NOW, "refused", "eve", "tokenizer", 1, "another tokenizer"),
    ClientEvent(NOW, "barred", "eve", "too many_refused messages"),
)
SOURCES = (Source("model", 2000, 1500), Source("ngram", 40, 10), Source("self", 0, 0))

DRAFTED = {"writes": 155, "writes-too": 45, "is-stuck": 20}
"""Drafted tokens of 10 rounds, in which each of these clients got 13 of 100 tokens."""


def snapshots() -> tuple[Snapshot, Snapshot]:
    """One before these rounds, and one after them."""
    counters = {"num_rounds": 10, "num_tokens": 100, "num_drafted": sum(DRAFTED.values()), "num_clients": len(ROWS)}
    node = replace(EMPTY.node, budget=24)
    after = replace(EMPTY, at=NOW, node=node, clients=ROWS, sources=SOURCES, events=EVENTS, **counters)
    before = [
        replace(row, num_drafted=row.num_drafted - DRAFTED[row.name], num_tokens=row.num_tokens - 13)
        if row.name in DRAFTED
        else row
        for row in ROWS
    ]
    return replace(after, at=NOW - 1, num_rounds=0, num_tokens=0, num_drafted=0, clients=tuple(before)), after


@pytest.fixture(scope="module")
def driver() -> Iterator[Chrome]:
    before, after = snapshots()
    shown = [before]
    with served(make_app(Feed(lambda _: shown[-1], time.monotonic))) as url, browser() as driver:
        driver.get(url)
        wait(driver, lambda: driver.find_elements(By.CSS_SELECTOR, "tr.idle"))
        shown.append(after)
        wait(driver, lambda: driver.find_element(By.ID, "drafted-per-round").text == "22.0")
        yield driver


def cells(driver: Chrome, name: str) -> list[str]:
    row = driver.find_element(By.CSS_SELECTOR, f'tr[data-key="{name}"]')
    return [cell.text for cell in row.find_elements(By.CSS_SELECTOR, "td")][1:]


def test_what_clients_draft_sums_to_what_stands_beside_the_budget(driver: Chrome) -> None:
    """Permissions do not, and are marked as bounds."""
    figure = driver.find_element(By.CSS_SELECTOR, "#figures div:nth-child(4)").text.split()
    assert " ".join(figure) == "Drafted per round 22.0 of budget 24"
    assert [cells(driver, name)[1] for name in ("writes", "writes-too", "is-stuck")] == ["15.5", "4.5", "2.0"]
    assert [cells(driver, name)[2] for name in ("writes", "writes-too")] == ["≤ 31", "≤ 24"]


def test_a_client_that_writes(driver: Chrome) -> None:
    state, *figures = cells(driver, "writes")
    assert state == "connected 1 min\nwriting 2 texts"
    assert figures == ["15.5", "≤ 31", "0.53", "1.42", "13 %", "1,094", "1"]
    assert cells(driver, "writes-too")[0] == "connected 1 min\nwriting 1 text"


@pytest.mark.parametrize(
    ("name", "activity", "drafted", "share"),
    [("rests", "idle", "0.0", "0 %"), ("is-stuck", "no progress for 8 s", "2.0", "13 %")],
)
def test_one_that_does_not_has_no_estimates(driver: Chrome, name: str, activity: str, drafted: str, share: str) -> None:
    """What is measured stays: the figures of all clients sum to the total."""
    state, *figures = cells(driver, name)
    assert state == f"connected 1 min\n{activity}"
    assert figures == [drafted, *[NOTHING] * 3, share, "1,094", "1"]
    for estimate in ("acceptance", "goodput"):
        bar = driver.find_element(By.CSS_SELECTOR, f'tr[data-key="{name}"] .{estimate} .bar i')
        assert re.search(r"width: 0%", str(bar.get_attribute("style")))


def test_events_say_who_and_why(driver: Chrome) -> None:
    said = [one.text for one in driver.find_elements(By.CSS_SELECTOR, "#events li > span")]
    assert said[0].startswith("a draft node without a name: hello first (this node has started anew, ")
    assert said[0].endswith("it connects again by itself) \N{MULTIPLICATION SIGN} 2")
    assert said[1:] == ["eve: tokenizer (another tokenizer)", "eve: too many_refused messages"]


def rows(driver: Chrome, name: str) -> dict[str, list[str]]:
    """Returns what a list says, in order of its rows: their texts and the lengths of their bars."""
    script = """
        return [...document.querySelectorAll(arguments[0] + " li")].map((li) => [li.dataset.key,
            [...[...li.querySelectorAll("span")].map((one) => one.innerText), li.querySelector("i").style.width]]);
    """
    return dict(driver.execute_script(script, name))


def test_tokens_by_what_drafted_them(driver: Chrome) -> None:
    assert list(rows(driver, "#sources").items()) == [
        ("model", ["model", "1,500 of 2,000", "0.75", "75%"]),
        ("ngram", ["ngram", "10 of 40", "0.25", "25%"]),
        ("self", ["self", "0 of 0", NOTHING, "0%"]),
    ]


# -- every label leads to a sentence, and every sentence is of use -----------------------------------------------------


DOCS = Path(__file__).parents[4] / "docs" / "METRICS.md"
INDEX = (PAGE / "index.html").read_text("utf-8")


@pytest.mark.parametrize("width", [1280, 360])
def test_every_heading_and_figure_leads_to_a_sentence(driver: Chrome, width: int) -> None:
    resize(driver, width, 900)
    script = """
        const all = "h2, #figures dt, th, #split-legend li, #clients td:nth-child(n+3)";
        const unexplained = [...document.querySelectorAll(all)].filter((one) => !one.querySelector(".term"));
        return [unexplained.map((one) => one.innerText),
            [...document.querySelectorAll(".term")].map((one) => [one.hash, one.title])];
    """
    unexplained, terms = driver.execute_script(script)
    assert unexplained == []
    sentences = {f"#{word}": text for word, text in re.findall(r'<dd id="(word-[\w-]+)">([^<]*)</dd>', INDEX)}
    assert dict(terms) == sentences
    for sentence in sentences.values():
        assert re.fullmatch(r"[A-Z“][^.]+\.", sentence)
    driver.execute_script("document.getElementById('words').open = false")
    place = "th" if width == 1280 else "#clients tbody tr:nth-child(2)"  # on a phone there is no head of the table
    driver.find_element(By.CSS_SELECTOR, f"{place} [href='#word-goodput']").click()
    wait(driver, lambda: driver.find_element(By.ID, "word-goodput").is_displayed())


def test_the_documentation_has_every_word() -> None:
    told = " ".join(DOCS.read_text("utf-8").lower().split())
    words = re.findall(r"<dt>([^<]+)</dt><dd id=", INDEX)
    assert len(words) > 20
    assert [word for word in words if word.lower() not in told] == []
