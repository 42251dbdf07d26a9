"""The browser tests say what to install where there is no browser, and never pass unrun under CI."""

from pathlib import Path

import pytest

from tests.verify_node.watch.window import browser


@pytest.fixture(autouse=True)
def no_chromium(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(browser, "BROWSER", tmp_path / "chromium")


def test_without_a_browser_its_tests_are_skipped_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match="apt-get install chromium chromium-driver"):
        browser.need_browser()


def test_under_ci_they_fail_instead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="apt-get install chromium chromium-driver"):
        browser.need_browser()
