"""Opens a page in a browser, where a person is present."""

import webbrowser
from collections.abc import Mapping


def is_watched(environment: Mapping[str, str], platform: str, is_terminal: bool) -> bool:
    """Whether a person with a screen started the program: not a script, a CI job or a remote shell.

    environment: variables of the process; platform: `sys.platform`; is_terminal: of standard output.
    """
    if not is_terminal or environment.get("CI"):
        return False
    if platform == "darwin":  # has no variable for its display
        return not environment.get("SSH_CONNECTION")
    return bool(environment.get("DISPLAY") or environment.get("WAYLAND_DISPLAY"))


def open_page(url: str) -> bool:
    """Opens the URL; returns whether a browser was started. May take some seconds."""
    try:
        found = webbrowser.get()
    except webbrowser.Error:
        return False
    if type(found) is webbrowser.GenericBrowser:  # one for terminals: ours is in use, and it would be waited for
        return False
    return found.open(url)
