"""HTTP/1.1 framing, stricter than h11's: a request with two conflicting lengths is refused (request smuggling).

Behind a proxy that goes by one of two lengths, a server that goes by the other would take one user's bytes for the
request of another.
"""

import h11

LENGTH, ENCODING = b"content-length", b"transfer-encoding"


class StrictConnection(h11.Connection):
    """The server's side of a connection."""

    why: str | None = None
    """Text of the last error."""

    @property
    def is_more_there(self) -> bool:
        """Whether bytes were received that no event has consumed yet."""
        return len(self._receive_buffer) > 0

    def next_event(self) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
        """Raises RemoteProtocolError, after which the connection has to be closed."""
        try:
            event = super().next_event()
            if isinstance(event, h11.Request):
                _check(event)
            return event
        except h11.RemoteProtocolError as error:
            self.why = str(error)
            raise


def _check(request: h11.Request) -> None:
    names = {name for name, _ in request.headers}
    if ENCODING in names and LENGTH in names:
        raise h11.RemoteProtocolError("Content-Length together with Transfer-Encoding; send one of them", 400)
    if ENCODING in names and request.http_version < b"1.1":
        raise h11.RemoteProtocolError("Transfer-Encoding is none of HTTP/1.0; send Content-Length", 400)
