"""`POST /v1/completions`: a prompt, or several, and what follows it."""

import secrets
from collections.abc import Iterable, Sequence
from typing import Annotated

from fastapi import APIRouter, Depends, Request
from starlette.responses import Response

from draft_node.config import DraftConfig
from draft_node.serve.api.document import WORK, takes
from draft_node.serve.api.large import LargeWork
from draft_node.serve.api.request.body import reads
from draft_node.serve.api.request.schemas import CompletionRequest
from draft_node.serve.api.request.wanted import Wish, of_completion
from draft_node.serve.api.response.answering import Choice, answer, now
from draft_node.serve.api.response.logprobs import Offsets, for_completion
from draft_node.serve.api.response.responses import Completion, CompletionChoice, FinishReason, Logprobs, Usage
from draft_node.serve.api.response.texts import unless_gone
from draft_node.serve.service import Ended, Piece, Service, Token
from goodspeed.node.web import user_of


class Shape:
    """Whole and in chunks, these look alike."""

    def __init__(self, model: str, wish: Wish, *, logprobs: bool) -> None:
        self._id = f"cmpl-{secrets.token_hex(16)}"
        self._created = now()
        self._model = model
        self._echoes = wish.echoes
        self._logprobs = logprobs
        self._offsets = [Offsets() for _ in wish.texts]

    def whole(self, choices: Sequence[Choice], usage: Usage) -> Completion:
        answer = self._completion(
            [
                self._choice(i, self._echoes[i] + choice.text, choice.tokens, choice.ended.reason)
                for i, choice in enumerate(choices)
                if choice.ended
            ]
        )
        answer.usage = usage
        return answer

    def beginnings(self) -> Iterable[Completion]:
        return [self._completion([self._choice(i, echo, None)]) for i, echo in enumerate(self._echoes) if echo]

    def piece(self, index: int, piece: Piece) -> Completion | None:
        """None where there is nothing to tell."""
        if piece.text or (self._logprobs and piece.tokens):
            return self._completion([self._choice(index, piece.text, piece.tokens)])
        return None

    def ending(self, index: int, ended: Ended) -> Completion:
        return self._completion([self._choice(index, "", None, ended.reason)])

    def last(self) -> Completion:
        return self._completion([])

    def _choice(
        self, index: int, text: str, tokens: Sequence[Token] | None, reason: FinishReason | None = None
    ) -> CompletionChoice:
        """tokens: None where none are told of, () where there are none; a text may end before its first."""
        logprobs: Logprobs | None = None
        if self._logprobs and tokens is not None:
            logprobs = for_completion(tokens, self._offsets[index])
        return CompletionChoice(index=index, text=text, logprobs=logprobs, finish_reason=reason)

    def _completion(self, choices: list[CompletionChoice]) -> Completion:
        return Completion(
            id=self._id, object="text_completion", created=self._created, model=self._model, choices=choices
        )


def router(service: Service, config: DraftConfig, work: LargeWork) -> APIRouter:
    routes = APIRouter()

    @routes.post("/v1/completions", response_model=Completion, responses=WORK, openapi_extra=takes(CompletionRequest))
    async def completions(
        request: Request, body: Annotated[CompletionRequest, Depends(reads(CompletionRequest, work.bodies))]
    ) -> Response:
        wanted = of_completion(body, service, config, user_of(request.scope), request.headers)
        wish = await unless_gone(request.receive, wanted)
        shape = Shape(config.served_model_name, wish, logprobs=body.logprobs is not None)
        return await answer(request, body, wish, shape, service, config, work.answers)

    return routes
