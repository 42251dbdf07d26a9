"""The chat page in a real browser, at an application whose service is made up."""

import asyncio
from collections.abc import Callable, Iterator

import pytest
from selenium.webdriver import Chrome
from selenium.webdriver.common.by import By

from draft_node.parsing.parser import ONLY_CONTENT
from draft_node.service.output_processor import Piece
from goodspeed.errors import ServiceError
from goodspeed.serving.api_keys import Keys
from tests.draft_node.http.fake import Api
from tests.draft_node.http.speaking import SpeakingService
from tests.verify_node.watch.page.browser import browser, need_browser, served, wait

pytestmark = pytest.mark.nodes
need_browser()

SAYS = "<think>\nShort.\n</think>\n\n<b>Hello</b> <img src=x onerror=alert(1)>"
ANSWER = SAYS.partition("\n\n")[2]


class Slow(SpeakingService):
    """Says the same; with `waits` only the beginning, and then nothing until it is stopped."""

    waits = False

    async def write(self, generation, parser=ONLY_CONTENT):
        if self.error is not None:
            raise self.error
        async for each in super().write(generation, parser):
            yield each
            if self.waits and isinstance(each, Piece) and "H" in each.text:
                await asyncio.sleep(3600)


class Page:
    def __init__(self, driver: Chrome, service: Slow) -> None:
        self.driver = driver
        self.service = service

    def text(self, selector: str) -> str:
        return self.driver.find_element(By.CSS_SELECTOR, selector).text

    def write(self, selector: str, text: str) -> None:
        self.driver.find_element(By.CSS_SELECTOR, selector).send_keys(text + "\n")

    def click(self, selector: str) -> None:
        self.driver.find_element(By.CSS_SELECTOR, selector).click()

    def wait(self, until: Callable[[], object]) -> None:
        wait(self.driver, until)

    def answers(self) -> list[str]:
        found = self.driver.find_elements(By.CSS_SELECTOR, "article:not(.user) > div")
        return [] if self.driver.find_elements(By.CSS_SELECTOR, ".writing") else [each.text for each in found]

    def errors(self) -> list[str]:
        """The errors of scripts, and of what the page's own policy forbids; not the node's answers."""
        found = self.driver.get_log("browser")
        return [each["message"] for each in found if each["level"] == "SEVERE" and each["source"] != "network"]


@pytest.fixture
def page() -> Iterator[Page]:
    service = Slow(SAYS)
    with served(Api(service=service, keys=Keys(["the-key-itself"])).app) as url, browser(360, 700) as driver:
        driver.get(url)
        yield Page(driver, service)


def test_a_conversation(page: Page) -> None:
    page.wait(lambda: page.text("#model") == "Enter your API key.")
    page.write("#secret", "another-key")
    page.wait(lambda: "not known here" in page.text("#model"))
    page.write("#secret", "the-key-itself")
    page.wait(lambda: page.text("#model") == "big-model")

    page.write("#text", "<i>hi</i>")
    page.wait(lambda: page.answers() == [ANSWER])
    assert page.text(".user") == "<i>hi</i>"
    assert page.text("summary") == "Thinking"
    assert "Short." not in page.text("#log")  # collapsed
    page.click("summary")
    assert "Short." in page.text("#log")
    assert not page.driver.find_elements(By.CSS_SELECTOR, "#log b, #log i, #log img")  # all of it is text

    page.service.waits = True
    page.write("#text", "again")
    page.wait(lambda: page.text("article:last-child > div") == "<b>H")  # shown as it comes
    page.click("#stop")
    page.wait(lambda: page.answers() == [ANSWER, "<b>H"])
    assert page.text("article:last-child .note") == "stopped"

    page.service.error = ServiceError("verify_away", "the verify node has been away for 9 s; ask again later")
    page.write("#text", "once more")
    page.wait(lambda: "away for 9 s; ask again later" in page.text("[role=alert]"))
    page.service.error, page.service.waits = None, False
    page.click("[role=alert] button")
    page.wait(lambda: page.answers() == [ANSWER, "<b>H", ANSWER])
    turns = ["user\n<i>hi</i>", f"assistant\n{ANSWER}", "user\nagain", "assistant\n<b>H", "user\nonce more"]
    shown = [turn.strip() for turn in page.service.prompts[-1].split("<|im_start|>")[1:]]
    assert shown[: len(turns)] == [f"{turn}<|im_end|>" for turn in turns]
    wide = "return document.documentElement.scrollWidth > document.documentElement.clientWidth"
    assert not page.driver.execute_script(wide)
    assert page.errors() == []

    page.click("#new")
    page.wait(lambda: page.text("#model") == "big-model")  # the key is kept
    assert page.answers() == []
