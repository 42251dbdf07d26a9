"""Opens a page in a browser, where there is somebody to look at it. Knows nothing about what the page shows."""

import webbrowser
from collections.abc import Mapping


def is_watched(environment: Mapping[str, str], platform: str, is_terminal: bool) -> bool:
    """Whether somebody with a screen started us: not a script, not a CI job, not a shell on a machine far away.

    environment: variables of the process; platform: `sys.platform`; is_terminal: of standard output.
    """
    if not is_terminal or environment.get("CI"):
        return False
    if platform == "darwin":  # has no variable for its display
        return not environment.get("SSH_CONNECTION")
    return bool(environment.get("DISPLAY") or environment.get("WAYLAND_DISPLAY"))


def open_page(url: str) -> bool:
    """Whether a browser was started for it. May take some seconds."""
    try:
        found = webbrowser.get()
    except webbrowser.Error:
        return False
    if type(found) is webbrowser.GenericBrowser:  # one for terminals: ours is in use, and it would be waited for
        return False
    return found.open(url)
