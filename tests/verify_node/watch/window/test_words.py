"""Every label of the page explains itself, to the pointer, the keyboard and a finger; no other word is explained."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace
from selenium.webdriver import ActionChains, Chrome, Keys
from selenium.webdriver.common.by import By

from tests.verify_node.watch.window.browser import browser, need_browser, resize, served, wait
from tests.verify_node.watch.window.snapshots import EMPTY, WRITES, make_app
from verify_node.watch.app import PAGE, Feed
from verify_node.watch.snapshot import Snapshot

pytestmark = pytest.mark.nodes
need_browser()

DOCS = Path(__file__).parents[4] / "docs" / "METRICS.md"
TIP = "const tip = document.getElementById('tip'); return tip.hidden ? '' : tip.innerText"


def take(now: float) -> Snapshot:
    """Two clients, so that there is a first row and another one."""
    return replace(EMPTY, at=now, num_clients=2, clients=(WRITES, replace(WRITES, name="client-2")))


@pytest.fixture(scope="module")
def driver() -> Iterator[Chrome]:
    with served(make_app(Feed(take, lambda: 0.0))) as url, browser() as driver:
        driver.get(url)
        wait(driver, lambda: len(driver.find_elements(By.CSS_SELECTOR, "#clients tbody tr")) == 2)
        yield driver


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
