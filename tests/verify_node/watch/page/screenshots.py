"""Takes the pictures of docs/METRICS.md: `make screenshots`, or this module with a folder as its argument."""

import base64
import io
import sys
import tempfile
import time
from pathlib import Path

from PIL import Image
from selenium.webdriver import Chrome

from tests.verify_node.watch.page.browser import browser, prefer, resize
from tests.verify_node.watch.page.run import idle, running

DOCS = Path(__file__).parents[4] / "docs"
WATCHED_S = 45
"""Long enough for lines in the charts."""

NUM_COLORS = 256
"""A palette keeps the pictures small."""


def main() -> int:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else DOCS
    with (
        tempfile.TemporaryDirectory() as scratch,
        running(5, Path(scratch), kv_pages=192) as run,
        idle("client-6", run),
        browser() as driver,
    ):
        prefer(driver, "dark")
        driver.get(run.url)
        time.sleep(WATCHED_S)
        run.drafts["client-3"].kill()
        time.sleep(12)
        save(driver, folder / "window-dark.png", 1180, 1140)
        prefer(driver, "light")
        save(driver, folder / "window-phone.png", 360, 1940)
    return 0


def save(driver: Chrome, path: Path, width: int, height: int) -> None:
    resize(driver, width, height)
    time.sleep(2)
    picture = driver.execute_cdp_cmd("Page.captureScreenshot", {"format": "png"})["data"]
    image = Image.open(io.BytesIO(base64.b64decode(picture))).convert("RGB")
    image.quantize(NUM_COLORS, dither=Image.Dither.NONE).save(path, optimize=True)
    print(f"{path}: {path.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    raise SystemExit(main())
