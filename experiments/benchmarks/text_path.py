"""What the draft node's event loop spends on a token between the session and the user's text.

Bytes to characters, stop strings and the tokens' own texts (`draft_node/service/answer.py`), for the embedded tokenizer
on its own texts, delivered in pieces of three tokens as a draft node would. CPU time; `share` is that of one core
when 16 sessions get 100 tokens per second each. Nothing of a model, of messages or of HTTP is in it.

It takes about 10 s on two cores; about 5 s with --quick.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from dataclasses import dataclass
from typing import Any

from draft_node.core.actions import Deliver
from draft_node.service.answer import Answer
from draft_node.service.tokens import TokenTexts
from goodspeed.embedded import prompts
from goodspeed.engine.checkpoints import load_tokenizer
from goodspeed.engine.tokenizing.text import encode_prompt
from goodspeed.engine.tokenizing.text_stream import TextStream
from goodspeed.wire.messages import TokenLogprobs

TOKENS_PER_S = 16 * 100
PIECE_LEN = 3
STOPS = ("\n\nUser?", "\n\n\n\n", "<|stop|>", "The end of all things")


@dataclass(frozen=True)
class Case:
    """A request's options beside the text; `stops` None: the text alone, without tokens."""

    name: str
    stops: tuple[str, ...] | None = ()
    num_logprobs: int | None = None


CASES = [
    Case("text stream alone", None),
    Case("text and tokens"),
    Case("with 4 stop strings", STOPS),
    Case("with 5 logprobs", (), 5),
    Case("with 20 logprobs", (), 20),
]


def measure(case: Case, tokenizer: Any, ids: list[int], repetitions: int) -> dict[str, object]:
    texts = TokenTexts(tokenizer)
    deliveries = [deliver(ids[at : at + PIECE_LEN], case) for at in range(0, len(ids), PIECE_LEN)]
    times = [once(case, tokenizer, texts, deliveries) / len(ids) for _ in range(repetitions + 1)][1:]  # tokens known
    token_s = statistics.median(times)
    return {"case": case.name, "token_us": token_s * 1e6, "share": token_s * TOKENS_PER_S}


def deliver(ids: list[int], case: Case) -> Deliver:
    if case.num_logprobs is None:
        return Deliver(tuple(ids))
    top = tuple(range(100, 100 + case.num_logprobs))
    return Deliver(tuple(ids), tuple(TokenLogprobs(-1.0, top, (-1.0,) * len(top)) for _ in ids))


def once(case: Case, tokenizer: Any, texts: TokenTexts, deliveries: list[Deliver]) -> float:
    """Returns the CPU seconds for all tokens."""
    started = time.process_time()
    if case.stops is None:
        stream = TextStream(tokenizer)
        for delivery in deliveries:
            for token_id in delivery.tokens:
                stream.push([token_id])
    else:
        answer = Answer(tokenizer, texts, case.stops, 0)
        for delivery in deliveries:
            answer.take(delivery)
        if answer.stop is not None:
            raise RuntimeError(f"the text has the stop string {answer.stop!r}; the rest of it was not measured")
    return time.process_time() - started


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m experiments.benchmarks.text_path", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer repetitions")
    parser.add_argument("--json", action="store_true", help="one JSON object as the last line")
    options = parser.parse_args()
    tokenizer = load_tokenizer("tiny-target")
    ids = [token_id for prompt in prompts.demo() for token_id in encode_prompt(tokenizer, prompt.prompt)]
    results = [measure(case, tokenizer, ids, 5 if options.quick else 50) for case in CASES]
    print(table(results), file=sys.stderr if options.json else sys.stdout)
    if options.json:
        print(json.dumps({"benchmark": "text_path", "num_tokens": len(ids), "cases": results}))
    return 0


def table(results: list[dict[str, object]]) -> str:
    lines = [f"{'':22} {'µs a token':>11} {'share':>7}"]
    lines += [f"{row['case']:22} {row['token_us']:11.2f} {row['share']:7.1%}" for row in results]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
