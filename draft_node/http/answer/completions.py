"""Texts become completions, whole or in chunks."""

from collections.abc import Iterable, Sequence

from draft_node.http.answer.choices import Choice, Json
from draft_node.http.answer.chunks import Chunked
from draft_node.http.answer.logprobs import Offsets, echoed, for_completion
from draft_node.http.ask.generation import Batch
from draft_node.http.schema.chat import CompletionRequest
from draft_node.service.output_processor import Ended, Piece
from draft_node.service.token_text import PromptTokens, Token
from goodspeed.wire.fields import FinishReason


class CompletionShape(Chunked):
    """Completions; whole answers and chunks have the same form."""

    kind = kind_of_chunks = "text_completion"

    def __init__(self, body: CompletionRequest, batch: Batch, model: str) -> None:
        super().__init__(body, batch, model, "cmpl")
        self._num_logprobs = body.logprobs  # alternatives per token; None: no log-probabilities
        self._offsets = [Offsets() for _ in batch.texts]

    def told(self, index: int, choice: Choice, ended: Ended) -> Json:
        prompt = choice.prompt if self._echoes_logprobs else None
        text = self.batch.echoes[index] + choice.text
        return self._choice(index, text, choice.tokens, ended.reason, prompt) | self.prompt_ids(index)

    def beginnings(self) -> Iterable[Json]:
        """Returns chunks with the echoes; none with log-probabilities, where the first piece has the echo."""
        batch = self.batch
        if self._echoes_logprobs:
            return []
        texts = enumerate(batch.echoes)
        return [self._begun(self._choice(i, echo, None)) for i, echo in texts if echo or batch.returns_token_ids]

    def piece(self, index: int, piece: Piece) -> Json | None:
        if piece.prompt is not None and self._echoes_logprobs:
            text = self.batch.echoes[index] + piece.text
            return self._begun(self._choice(index, text, piece.tokens, prompt=piece.prompt))
        if piece.text or (piece.tokens and (self._num_logprobs is not None or self.batch.returns_token_ids)):
            return self.chunk(self._choice(index, piece.text, piece.tokens))
        return None

    def ending(self, index: int, ended: Ended) -> Json:
        return self.chunk(self._choice(index, "", None, ended.reason))

    @property
    def _echoes_logprobs(self) -> bool:
        return self._num_logprobs is not None and self.batch.is_echo

    def _begun(self, choice: Json) -> Json:
        return self.chunk(choice | self.prompt_ids(choice["index"]))

    def _choice(
        self,
        index: int,
        text: str,
        tokens: Sequence[Token] | None,
        reason: FinishReason | None = None,
        prompt: PromptTokens | None = None,
    ) -> Json:
        """Builds a choice. tokens: None: omit log-probabilities and ids; (): empty ones, of a text without tokens."""
        logprobs: Json | None = None
        if self._num_logprobs is not None and tokens is not None:
            before = echoed(prompt, self._num_logprobs) if prompt is not None else ()
            logprobs = for_completion(tokens, self._offsets[index], before)
        ids = {} if tokens is None else self.ids_of(tokens)
        return {"index": index, "text": text, "logprobs": logprobs, "finish_reason": reason, **ids}
