"""`POST /v1/completions`: a prompt, or several, and what follows it."""

import secrets
from collections.abc import Iterable, Sequence
from typing import Annotated

from fastapi import APIRouter, Depends, Request
from starlette.responses import Response

from draft_node.config import DraftConfig
from draft_node.http.answering import answer, now
from draft_node.http.body import LargeWork, reads
from draft_node.http.choices import Choice
from draft_node.http.document import WORK, takes
from draft_node.http.logprobs import Offsets, echoed, for_completion
from draft_node.http.requests import CompletionRequest
from draft_node.http.streams import unless_gone
from draft_node.http.wanted import Wish, of_completion
from draft_node.service.answer import Piece
from draft_node.service.request import Ended
from draft_node.service.service import Service
from draft_node.service.tokens import PromptTokens, Token
from goodspeed.serving.web import user_of
from goodspeed.serving.web.bodies import Completion, CompletionChoice, FinishReason, Logprobs, Usage


class Shape:
    """Whole and in chunks, these look alike."""

    def __init__(self, model: str, wish: Wish, *, logprobs: int | None) -> None:
        """logprobs: alternatives told of each token; None: no log-probabilities."""
        self._id = f"cmpl-{secrets.token_hex(16)}"
        self._created = now()
        self._model = model
        self._wish = wish
        self._logprobs = logprobs
        self._offsets = [Offsets() for _ in wish.texts]

    def frame(self, choices: Sequence[Choice], usage: Usage) -> Completion:
        """A whole answer, but for its choices."""
        answer = self._completion([])
        answer.usage = usage
        return answer

    def beginnings(self) -> Iterable[Completion]:
        """Where log-probabilities are told of the prompt, they come with it: in the first piece."""
        wish = self._wish
        if self._echoes_logprobs or not (wish.returns_token_ids or any(wish.echoes)):
            return []
        texts = enumerate(wish.echoes)
        return [self._begun(self._choice(i, echo, None)) for i, echo in texts if echo or wish.returns_token_ids]

    def piece(self, index: int, piece: Piece) -> Completion | None:
        """None where there is nothing to tell."""
        if piece.prompt is not None and self._echoes_logprobs:
            text = self._wish.echoes[index] + piece.text
            return self._begun(self._choice(index, text, piece.tokens, prompt=piece.prompt))
        if piece.text or (self._tells_tokens and piece.tokens):
            return self._completion([self._choice(index, piece.text, piece.tokens)])
        return None

    def ending(self, index: int, ended: Ended) -> Completion:
        return self._completion([self._choice(index, "", None, ended.reason)])

    def last(self) -> Completion:
        return self._completion([])

    @property
    def _tells_tokens(self) -> bool:
        return self._logprobs is not None or self._wish.returns_token_ids

    @property
    def _echoes_logprobs(self) -> bool:
        return self._logprobs is not None and self._wish.is_echo

    def told(self, index: int, choice: Choice) -> CompletionChoice:
        wish, reason = self._wish, choice.ended.reason if choice.ended else None
        prompt = choice.prompt if self._echoes_logprobs else None
        told = self._choice(index, wish.echoes[index] + choice.text, choice.tokens, reason, prompt)
        if wish.returns_token_ids:
            told.prompt_token_ids = list(wish.texts[index].prompt)
        return told

    def _begun(self, choice: CompletionChoice) -> Completion:
        """The first chunk of a choice."""
        if self._wish.returns_token_ids:
            choice.prompt_token_ids = list(self._wish.texts[choice.index].prompt)
        return self._completion([choice])

    def _choice(
        self,
        index: int,
        text: str,
        tokens: Sequence[Token] | None,
        reason: FinishReason | None = None,
        prompt: PromptTokens | None = None,
    ) -> CompletionChoice:
        """tokens: None where none are told of, () where there are none; a text may end before its first."""
        logprobs: Logprobs | None = None
        if self._logprobs is not None and tokens is not None:
            before = echoed(prompt, self._logprobs) if prompt is not None else ()
            logprobs = for_completion(tokens, self._offsets[index], before)
        choice = CompletionChoice(index=index, text=text, logprobs=logprobs, finish_reason=reason)
        if self._wish.returns_token_ids and tokens is not None:
            choice.token_ids = [token.id for token in tokens]
        return choice

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
        shape = Shape(config.served_model_name, wish, logprobs=body.logprobs)
        return await answer(request, body, wish, shape, service, config, work.answers)

    return routes
