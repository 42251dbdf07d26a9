"""The caller of a route: the user, the node that serves, and the names of its one model."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from starlette.requests import Request

from draft_node.config import ANY_NAME, DraftConfig
from draft_node.http.schema.errors import ApiError
from draft_node.service.service import Service
from goodspeed.errors import VerifyAway
from goodspeed.serving.web.guards import user_of

T = TypeVar("T")

OUR_NAME = "goodspeed"
"""Taken, in addition to the target's own name, where no --served-model-name is given."""


@dataclass(frozen=True, slots=True)
class Caller:
    """A request's user and size, and the node that serves it."""

    service: Service
    config: DraftConfig
    user: str
    num_bytes: int  # of the body

    @classmethod
    def of(cls, request: Request, service: Service, config: DraftConfig) -> "Caller":
        """Returns the caller of a request whose body has been read."""
        return cls(service, config, user_of(request.scope), request.state.num_bytes)

    async def run(self, work: Callable[[], T]) -> T:
        """Runs work whose time is that of reading the body."""
        return await self.service.bodies.run(self.user, self.num_bytes, work)

    def model_of(self, name: str | None) -> str:
        """Returns the model's name for the answer to a request for `name`; see `served_name`."""
        return served_name(name, self.service, self.config)


def names_of(service: Service, config: DraftConfig) -> list[str]:
    """Returns the names that are listed; the first one is that of answers to requests without a name."""
    given = [name for name in config.served_model_name if name != ANY_NAME]
    return given or [service.target_name or OUR_NAME]


def served_name(asked: str | None, service: Service, config: DraftConfig) -> str:
    """Returns the name for the answer: the request's own if it has one.

    ApiError 404 if no model of this name is served; VerifyAway if it may be the name of a target that is not yet known.
    """
    names = names_of(service, config)
    if asked is None:
        return names[0]
    if asked in names or ANY_NAME in config.served_model_name or (not config.served_model_name and asked == OUR_NAME):
        return asked
    if not config.served_model_name and service.target_name is None:
        raise VerifyAway("verify_away", service.absence)
    shown = asked if re.fullmatch(r"[\w.:/-]{1,80}", asked, re.ASCII) else "NAME"
    allow = f"start this draft node with --served-model-name {shown}, or '{ANY_NAME}' for any name"
    what = f"the model {asked[:80]!a} is not served here; ask for {' or '.join(map(repr, names))}, or {allow}"
    raise ApiError(404, what, param="model", code="model_not_found")
