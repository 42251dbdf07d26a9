"""The page describes clients in each state, and drafts, from made-up snapshots; and it explains its labels.

Nothing old is shown as if it were new.
"""

import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace
from selenium.webdriver import ActionChains, Chrome, Keys
from selenium.webdriver.common.by import By

from tests.verify_node.watch.window.browser import browser, need_browser, resize, served, wait
from tests.verify_node.watch.window.snapshots import EMPTY, WRITES, make_app
from verify_node.core.counts import DiaryEntry
from verify_node.watch.app import PAGE, Feed
from verify_node.watch.snapshot import Node, Snapshot, Source

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
    DiaryEntry(NOW, "refused", "", "hello_first", 2),
    DiaryEntry(NOW, "refused", "eve", "tokenizer", 1, "another tokenizer"),
    DiaryEntry(NOW, "barred", "eve", "too many_refused messages"),
)
SOURCES = (Source("model", 2000, 1500), Source("ngram", 40, 10), Source("self", 0, 0))

DRAFTED = {"writes": 155, "writes-too": 45, "is-stuck": 20}
"""Drafted tokens of 10 rounds, in which each of these clients got 13 of 100 tokens."""


def snapshots() -> tuple[Snapshot, Snapshot]:
    """One before these rounds, and one after them."""
    after = replace(
        EMPTY,
        at=NOW,
        node=Node("00", "1.2.3", "tiny-target", "gradient", "continuous", 24),
        num_rounds=10,
        num_tokens=100,
        num_drafted=sum(DRAFTED.values()),
        num_clients=len(ROWS),
        clients=ROWS,
        sources=SOURCES,
        events=EVENTS,
    )
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
    assert cells(driver, "writes") == [
        "connected 1 min\nwriting 2 texts",
        "15.5",
        "≤ 31",
        "0.53",
        "1.42",
        "13 %",
        "1,094",
        "1",
    ]
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


# -- every label explains itself, to the pointer, the keyboard and a finger; no other word is explained ----------------


DOCS = Path(__file__).parents[4] / "docs" / "METRICS.md"
TIP = "const tip = document.getElementById('tip'); return tip.hidden ? '' : tip.innerText"


@pytest.fixture(autouse=True)
def wide(driver: Chrome) -> None:
    resize(driver, 1280, 900)
    driver.execute_script("document.activeElement.blur()")


def sentence(word: str) -> str:
    """Returns what the page says of a word."""
    found = re.search(rf'id="word-{word}">([^<]*)</dd>', (PAGE / "index.html").read_text("utf-8"))
    assert found, word
    return found[1]


def test_every_heading_and_figure_has_a_sentence_and_every_sentence_is_of_use(driver: Chrome) -> None:
    script = """
        const all = "h2, #figures dt, th, #split-legend li, #clients td:nth-child(n+3)";
        const labels = [...document.querySelectorAll(all)];
        const unexplained = labels.filter((one) => !one.querySelector("[data-word]")).map((one) => one.innerText);
        return [unexplained, [...document.querySelectorAll("[data-word]")].map((one) => [
            one.dataset.word, document.getElementById(one.getAttribute("aria-describedby"))?.textContent ?? ""])];
    """
    unexplained, words = driver.execute_script(script)
    assert unexplained == []
    assert all(text == sentence(word) for word, text in words)
    explained = re.findall(r'<dd id="word-([\w-]+)">', (PAGE / "index.html").read_text("utf-8"))
    assert {word for word, _ in words} == set(explained)
    for word in explained:
        assert re.fullmatch(r"[A-Z“][^.]+\.", sentence(word)), word  # one sentence


def test_the_pointer_is_told(driver: Chrome) -> None:
    actions = ActionChains(driver, duration=0)
    for selector, word in (
        ("#figures [data-word=utility]", "utility"),
        ("#policy", "policy"),
        ("th [data-word=share]", "share"),
    ):
        actions.move_to_element(driver.find_element(By.CSS_SELECTOR, selector)).perform()
        assert driver.execute_script(TIP) == sentence(word)
    actions.move_to_element(driver.find_element(By.ID, "tip")).perform()
    assert driver.execute_script(TIP) == sentence("share")  # it can be read with a magnifying glass
    actions.move_to_element(driver.find_element(By.ID, "version")).perform()
    assert driver.execute_script(TIP) == ""


def test_the_keyboard_reaches_all_words(driver: Chrome) -> None:
    reached = {}
    script = "const one = document.activeElement; return [one.dataset.word || '', one.tagName]"
    for _ in range(60):
        ActionChains(driver).send_keys(Keys.TAB).perform()
        word, tag = driver.execute_script(script)
        if word:
            reached[word] = driver.execute_script(TIP)
        elif tag == "A":
            break
    shown = set(re.findall(r'data-word="([\w-]+)"', (PAGE / "index.html").read_text("utf-8")))
    assert set(reached) == shown | {"receive", "forward", "verify", "schedule", "send"}
    assert reached == {word: sentence(word) for word in reached}


def test_escape_hides_it(driver: Chrome) -> None:
    driver.execute_script("document.querySelector('th [data-word=goodput]').focus()")
    assert driver.execute_script(TIP) == sentence("goodput")
    ActionChains(driver).send_keys(Keys.ESCAPE).perform()
    assert driver.execute_script(TIP) == ""


def test_on_a_phone_a_finger_is_told_within_the_screen(driver: Chrome) -> None:
    resize(driver, 360, 800)
    wait(driver, lambda: driver.execute_script("return innerWidth") == 360)
    for row in (1, 2):
        label = driver.find_element(By.CSS_SELECTOR, f"#clients tbody tr:nth-child({row}) [data-word=goodput]")
        driver.execute_script("arguments[0].scrollIntoView({ block: 'center' })", label)
        label.click()
        assert driver.execute_script(TIP) == sentence("goodput")
        box = driver.execute_script(
            "const { left, right } = document.getElementById('tip').getBoundingClientRect(); return [left, right]"
        )
        assert 0 < box[0] < box[1] < 360
    stops = driver.execute_script(
        "return [...document.querySelectorAll('td .label')].filter((one) => one.tabIndex === 0).length"
    )
    assert stops == 7  # of the first row: the others say the same


def test_the_documentation_has_every_word() -> None:
    page, told = (PAGE / "index.html").read_text("utf-8"), " ".join(DOCS.read_text("utf-8").lower().split())
    words = re.findall(r"<dt>([^<]+)</dt><dd id=", page)
    assert len(words) > 20
    assert [word for word in words if word.lower() not in told] == []
