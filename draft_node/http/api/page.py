"""The chat page at `/`, for browsers: one file, whose own style and script are all that it may load or run."""

import re
from base64 import b64encode
from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path

from starlette.datastructures import Headers
from starlette.responses import HTMLResponse, Response
from starlette.types import Scope

from goodspeed.serving.web.guards import PAGE_HEADERS

CONTENT = Path(__file__).with_name("chat.html").read_text(encoding="utf-8")


def _sources(tag: str) -> str:
    """Returns the hashes of the page's elements of a kind, as its policy names them."""
    parts: Iterable[str] = re.findall(rf"<{tag}[^>]*>(.*?)</{tag}>", CONTENT, re.DOTALL)
    return " ".join(f"'sha256-{b64encode(sha256(part.encode()).digest()).decode()}'" for part in parts)


HEADERS = {
    "Content-Security-Policy": f"default-src 'none'; script-src {_sources('script')}; style-src {_sources('style')}; "
    "img-src data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    **PAGE_HEADERS,
    "Vary": "Accept",
}


def is_wanted(scope: Scope) -> bool:
    """Returns whether a request is a browser's for the page; it is answered without a key, and holds no secret."""
    is_read = scope["path"] == "/" and scope.get("method") in ("GET", "HEAD")
    return is_read and "text/html" in Headers(scope=scope).get("accept", "")


def page() -> Response:
    return HTMLResponse(CONTENT, headers=HEADERS)
