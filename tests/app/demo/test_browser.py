"""When the page is opened for somebody, and by what."""

import webbrowser

import pytest

from goodspeed.app.demo import browser

pytestmark = pytest.mark.nodes

SCREEN = {"DISPLAY": ":0"}


@pytest.mark.parametrize(
    ("environment", "platform", "is_terminal", "expected"),
    [
        (SCREEN, "linux", True, True),
        ({"WAYLAND_DISPLAY": "wayland-0"}, "linux", True, True),
        ({**SCREEN, "SSH_CONNECTION": "a 1 b 2"}, "linux", True, True),  # X is forwarded
        ({"SSH_CONNECTION": "a 1 b 2"}, "linux", True, False),
        ({}, "linux", True, False),
        (SCREEN, "linux", False, False),
        ({**SCREEN, "CI": "true"}, "linux", True, False),
        ({}, "darwin", True, True),
        ({"SSH_CONNECTION": "a 1 b 2"}, "darwin", True, False),
        ({"CI": "1"}, "darwin", True, False),
        ({}, "darwin", False, False),
    ],
)
def test_only_somebody_with_a_screen_gets_a_browser(
    environment: dict[str, str], platform: str, is_terminal: bool, expected: bool
) -> None:
    assert browser.is_watched(environment, platform, is_terminal) is expected


class Graphical(webbrowser.BaseBrowser):
    """A browser that remembers what it opened."""

    def __init__(self) -> None:
        super().__init__("graphical")
        self.opened: list[str] = []

    def open(self, url: str, new: int = 0, autoraise: bool = True) -> bool:
        self.opened.append(url)
        return True


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> list[webbrowser.BaseBrowser]:
    """What the standard library finds; nothing while the list is empty."""
    browsers: list[webbrowser.BaseBrowser] = []

    def get() -> webbrowser.BaseBrowser:
        if not browsers:
            raise webbrowser.Error("could not locate runnable browser")
        return browsers[0]

    monkeypatch.setattr(webbrowser, "get", get)
    return browsers


def test_a_browser_is_started(found: list[webbrowser.BaseBrowser]) -> None:
    graphical = Graphical()
    found.append(graphical)
    assert browser.open_page("http://127.0.0.1:1")
    assert graphical.opened == ["http://127.0.0.1:1"]


def test_none_is_not_a_failure(found: list[webbrowser.BaseBrowser]) -> None:
    assert not browser.open_page("http://127.0.0.1:1")


def test_one_for_terminals_is_left_alone(found: list[webbrowser.BaseBrowser], monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: object, url: str, new: int = 0, autoraise: bool = True) -> bool:
        raise AssertionError("it would take our terminal over")

    monkeypatch.setattr(webbrowser.GenericBrowser, "open", refuse)
    found.append(webbrowser.GenericBrowser("w3m"))
    assert not browser.open_page("http://127.0.0.1:1")
