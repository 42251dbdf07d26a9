"""Generates one text in one session of the draft daemon; also salts for prefix caches."""

import secrets
from collections.abc import AsyncGenerator
from contextlib import aclosing
from hashlib import blake2b

from draft_node.core.actions import Fail, Request, Statistics
from draft_node.core.session import Session
from draft_node.daemon import DraftDaemon
from draft_node.service.answer import Answer, Piece
from goodspeed.errors import Busy, Draining, RequestRefused, ServiceError, VerifyAway


class Writing:
    """One text from one target, in one session."""

    def __init__(self, daemon: DraftDaemon, request: Request, answer: Answer) -> None:
        self.request = request
        self.answer = answer
        self._daemon = daemon
        self._session: Session | None = None

    async def pieces(self) -> AsyncGenerator[Piece, None]:
        """Yields pieces of text as they become certain, the final one with `answer.is_complete`. Waits for admission.

        Raises a ServiceError if the session fails. Leaving the iteration early closes the session at both nodes.
        """
        async with aclosing(self._daemon.generate(self.request)) as items:
            async for item in items:
                self._session = self._daemon.session(self.request.session_id)
                if isinstance(item, Fail):
                    raise _error(item)
                yield self.answer.take(item)
                if self.answer.is_complete:
                    return

    @property
    def target(self) -> str | None:
        """Fingerprint of the text's target."""
        return self._begun.target

    @property
    def promised(self) -> bool | None:
        """True if the verify node promised the text's SLO; None: not reported."""
        return self._begun.promised

    @property
    def statistics(self) -> Statistics:
        return self._begun.statistics

    @property
    def _begun(self) -> Session:
        if self._session is None:
            raise RuntimeError("a text that has not begun has no target and no statistics")
        return self._session


def begins_anew(error: RequestRefused, num_tokens: int, *, restarts: bool = False) -> bool:
    """True if a text restarts after this error: the target changed, and no token was delivered.

    restarts: restart in any case; delivered tokens become void.
    """
    return error.code == "target_changed" and (restarts or not num_tokens)


def _error(fail: Fail) -> ServiceError:
    """Converts a session's failure to the error that its user gets."""
    if fail.code == "verify_away":
        return VerifyAway(fail.code, fail.what)
    if fail.code in ("draining", "closed"):
        return Draining(fail.code, fail.what)
    if fail.code == "not_promised":
        return Busy(fail.code, fail.what)
    return RequestRefused(fail.code, fail.what)


SALT_BYTES = 16


class Salts:
    """Prefix cache salts by user; a new process has new ones."""

    def __init__(self) -> None:
        self._secret = secrets.token_bytes(32)

    def of(self, user: str) -> bytes:
        """Returns the salt of a user's texts. user: empty on the console, where the operator is the only user."""
        return blake2b(user.encode(), digest_size=SALT_BYTES, key=self._secret, person=b"cache salt").digest()
