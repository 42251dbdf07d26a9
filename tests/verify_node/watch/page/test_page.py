"""The page in a real browser, with a real run going on."""

import json
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import urlopen

import pytest
from selenium.webdriver import Chrome
from selenium.webdriver.common.by import By

from goodspeed.embedded import prompts
from goodspeed.serving.api_keys import Keys
from goodspeed.serving.web.guards import KeyCheck
from tests.nodes import Process, VerifyNode
from tests.verify_node.watch.page.browser import browser, need_browser, prefer, resize, served, wait
from tests.verify_node.watch.page.snapshots import make_app

pytestmark = pytest.mark.nodes
need_browser()


class Page:
    """The page as a user sees it."""

    def __init__(self, driver: Chrome, verify: VerifyNode, drafts: dict[str, Process]) -> None:
        self.driver, self.verify, self.drafts = driver, verify, drafts

    def text(self, selector: str) -> str:
        return self.driver.find_element(By.CSS_SELECTOR, selector).text

    def number(self, selector: str) -> float:
        found = re.match(r"[\d,.]+", self.text(selector))
        return float(found[0].replace(",", "")) if found else 0.0

    def row(self, client: str) -> dict[str, str]:
        """Cells of a client by the last word of their class; empty without such a row."""
        script = """
            const rows = [...document.querySelectorAll("#clients tbody tr")];
            const row = rows.find((tr) => tr.dataset.key === arguments[0]);
            if (!row) return {};
            const cells = [...row.children].map((td) => [td.classList.item(td.classList.length - 1), td.innerText]);
            return { ...Object.fromEntries(cells), classes: row.className, state: row.children[1].innerText };
        """
        return dict(self.evaluate(script, client))

    def evaluate(self, script: str, *values: object) -> Any:
        return self.driver.execute_script(script, *values)

    def wait(self, until: Callable[[], object]) -> None:
        wait(self.driver, until)

    def errors(self) -> list[str]:
        """The errors of scripts, of what could not be loaded, and of what the page's own policy forbids."""
        return [entry["message"] for entry in self.driver.get_log("browser") if entry["level"] == "SEVERE"]


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    """Two draft nodes have so many texts to write that they never run out; they may still be about to connect."""
    with ExitStack() as stack:
        verify = stack.enter_context(VerifyNode(measures=False, heartbeat_s=0.5))
        drafts = {}
        for number, model in enumerate(("tiny-draft-s", "tiny-draft-m"), 1):
            file = tmp_path_factory.mktemp("prompts") / "prompts.jsonl"
            line = json.dumps({"prompt": prompts.demo()[number - 1].prompt, "seed": 7})
            file.write_text(f"{line}\n" * 1000, "utf-8")
            who = f"--model {model} --verify {verify.endpoint} --name client-{number}"
            texts = f"--prompts {file} --max-tokens 400 --max-sessions {number}"
            node = stack.enter_context(Process("draft_node", *who.split(), *texts.split(), ports={}))
            stack.callback(node.kill)  # in the middle of a text
            drafts[f"client-{number}"] = node
        for node in drafts.values():
            node.wait_for("ready")
        driver = stack.enter_context(browser())
        driver.get(verify.url)
        yield Page(driver, verify, drafts)


@pytest.mark.essential
def test_clients_and_figures_move(page: Page) -> None:
    page.wait(lambda: page.text("#line") == "live" and page.row("client-1") and page.row("client-2"))
    assert page.text("#about").startswith("tiny-target · gradient policy · continuous rounds")
    assert (page.text("#num-clients"), page.text("#budget")) == ("2", "24")
    page.wait(lambda: page.number("#tokens-per-s") > 0 and page.number("#rounds-per-s") > 0)
    before = page.number("#num-tokens")
    page.wait(lambda: page.number("#num-tokens") > before)
    row = page.row("client-1")
    assert row["name"].split() == ["client-1", "tiny-draft-s"]
    assert row["state"].startswith("connected")
    assert 0 < float(row["acceptance"]) < 1
    assert float(row["goodput"]) > 0
    page.wait(lambda: page.text("#split-about").startswith("in the last"))
    shares = [int(share) for share in re.findall(r"(\d+) %", page.text("#split-legend"))]
    assert len(shares) == 5
    assert 97 <= sum(shares) <= 103
    assert "joined" in page.text("#events")
    assert page.number("#pool-about") > 0
    assert page.text("#sources").startswith("model")
    assert page.errors() == []


def test_charts_are_drawn(page: Page) -> None:
    """They have the colour of the theme, which nothing else in a canvas has."""
    script = """
        const canvas = document.querySelector(arguments[0] + " canvas");
        if (!canvas) return 0;
        const data = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
        const color = getComputedStyle(document.documentElement).getPropertyValue(arguments[1]);
        const wanted = color.match(/[0-9a-f]{2}/g).map((digits) => parseInt(digits, 16));
        const near = (at) => data[at + 3] > 200 && wanted.every((value, i) => Math.abs(data[at + i] - value) < 8);
        return Array.from({ length: data.length / 4 }, (_, i) => near(4 * i)).filter(Boolean).length;
    """

    def is_drawn(chart: str, color: str) -> bool:
        return bool(page.evaluate(script, chart, color) > 20)

    for chart, color in (("#utility-chart", "--accent"), ("#goodput-chart", "--c0"), ("#goodput-chart", "--c1")):
        page.wait(partial(is_drawn, chart, color))
    assert page.errors() == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_dark_and_light(page: Page, scheme: str) -> None:
    prefer(page.driver, scheme)
    script = 'return ["backgroundColor", "color"].map((name) => getComputedStyle(document.body)[name])'
    ground, text = (sum(map(int, re.findall(r"\d+", color)[:3])) / 3 for color in page.evaluate(script))
    assert (ground > 200 and text < 80) if scheme == "light" else (ground < 50 and text > 200)


@pytest.mark.parametrize("width", [360, 700, 1280])
def test_nothing_is_wider_than_the_screen(page: Page, width: int) -> None:
    resize(page.driver, width, 900)
    page.wait(lambda: page.evaluate("return innerWidth") == width)
    page.wait(lambda: page.evaluate("return document.documentElement.scrollWidth") <= width)
    script = """
        const shown = [...document.querySelectorAll("body *")].filter((one) => !one.closest("thead"));
        return Math.max(...shown.map((one) => one.getBoundingClientRect().right));
    """  # a phone has the table's head for screen readers only
    page.wait(lambda: page.evaluate(script) <= width)
    assert page.row("client-2")


def test_a_killed_client_is_shown_as_lost(page: Page) -> None:
    page.drafts["client-2"].kill()
    page.wait(lambda: page.row("client-2")["state"].startswith("lost"))
    assert page.row("client-2")["classes"] == "lost"
    assert page.row("client-2")["length"] == "\N{EN DASH}"
    assert page.row("client-1")["state"].startswith("connected")
    page.wait(lambda: page.text("#num-clients") == "1" and re.search(r"lost\s+client-2", page.text("#events")))
    assert page.errors() == []


def test_it_says_that_the_node_is_away_and_comes_back_by_itself(page: Page) -> None:
    page.wait(lambda: page.text("#line") == "live")
    page.verify.kill()
    page.wait(lambda: re.match(r"away for \d+ s, reconnecting", page.text("#line")))
    with served(make_app(), urlsplit(page.verify.url).netloc):
        page.wait(lambda: page.text("#line") == "live" and page.text("#about").endswith("version 1.2.3"))
        assert page.text("#nobody") == "No draft node is connected."


def test_the_browser_asks_for_the_key_once(page: Page) -> None:
    guarded = KeyCheck(make_app(), Keys(["first-key"]), "a node")
    with served(guarded) as url:
        with pytest.raises(HTTPError, match="401"):
            urlopen(url)
        page.driver.get(url.replace("://", "://anybody:first-key@"))
        page.wait(lambda: page.text("#line") == "live")
