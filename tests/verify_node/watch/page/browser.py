"""Debian's headless Chromium, and applications that are served by a thread for it.

Nothing of it talks to anybody but the page.
"""

import asyncio
import os
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from selenium.webdriver import Chrome, ChromeOptions
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.support.wait import WebDriverWait
from starlette.types import ASGIApp

from goodspeed.serving.web.address import url
from goodspeed.serving.web.server import serve
from tests.listening import listen

TIMEOUT_S = 60
BROWSER, DRIVER = Path("/usr/bin/chromium"), Path("/usr/bin/chromedriver")
FLAGS = """
--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking
--disable-component-update --disable-sync --disable-dev-shm-usage --hide-scrollbars
""".split()


def need_browser() -> None:
    """Skips the calling test file without Chromium, in one line for all; fails it under CI, where it must run."""
    if BROWSER.exists() and DRIVER.exists():
        return
    missing = "the browser tests need Debian's chromium and chromium-driver: apt-get install chromium chromium-driver"
    if os.environ.get("CI"):
        pytest.fail(missing)
    pytest.skip(missing, allow_module_level=True)


@contextmanager
def browser(width: int = 1280, height: int = 900) -> Iterator[Chrome]:
    with tempfile.TemporaryDirectory() as profile:
        options = ChromeOptions()
        options.binary_location = str(BROWSER)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        for flag in (*FLAGS, f"--user-data-dir={profile}"):
            options.add_argument(flag)
        driver = Chrome(options, Service(str(DRIVER)))
        try:
            resize(driver, width, height)
            yield driver
        finally:
            driver.quit()


def wait(driver: Chrome, holds: Callable[[], object]) -> None:
    WebDriverWait(driver, TIMEOUT_S, 0.05).until(lambda _: holds())


def resize(driver: Chrome, width: int, height: int) -> None:
    """The page's own size; windows cannot be made as narrow as a phone."""
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)


def prefer(driver: Chrome, scheme: str) -> None:
    """scheme: `dark` or `light`."""
    feature = {"name": "prefers-color-scheme", "value": scheme}
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})


@contextmanager
def served(app: ASGIApp, address: str = "127.0.0.1:0") -> Iterator[str]:
    """An application on a thread of its own."""
    loop, listener = asyncio.new_event_loop(), listen(address)
    serving = loop.create_task(serve(app, listener))

    async def serve_to_the_end() -> None:
        await asyncio.gather(serving, return_exceptions=True)
        await asyncio.sleep(0)  # connections that were cut off close in the next turn

    thread = threading.Thread(target=lambda: loop.run_until_complete(serve_to_the_end()))
    thread.start()
    try:
        yield url(listener)
    finally:
        loop.call_soon_threadsafe(serving.cancel)
        thread.join()
        loop.close()
