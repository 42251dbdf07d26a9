"""`python -m training.held_out` chooses prompts from documents that no model was trained on."""

import argparse
import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

from goodspeed.embedded.prompts import PATH, Prompt
from training import corpus, domains

PER_DOMAIN = 16
MIN_REST = 500  # characters that the document goes on for: a prompt is the beginning of something long


def lines_up_to(num_chars: int) -> Callable[[str], str]:
    """Whole lines, until there are so many characters."""
    return lambda text: text[: text.find("\n", num_chars)].rstrip()


def through(mark: str, times: int) -> Callable[[str], str]:
    """Up to the end of a mark's n-th occurrence."""
    return lambda text: mark.join(text.split(mark)[:times]) + mark


CUTS: dict[str, Callable[[str], str]] = {
    "code": lines_up_to(200),
    "docs": lines_up_to(200),
    "math": through("\nWorking:", 2),
    "sql": through("\nSELECT", 1),
    "chat": through("\n\nAssistant:", 2),
    "json": lines_up_to(120),
    "convert": lines_up_to(120),
    "story": lines_up_to(100),
}


def openings(domain: str) -> Iterator[str]:
    """Prompts of held-out documents: those of one module after the other, so that they differ."""
    seen: Counter[str] = Counter()
    limit = PER_DOMAIN if domain in domains.GENERATORS else 2
    for doc in domains.documents(domain, held_out=True):
        prompt = CUTS[domain](doc.text)
        fits = len(prompt) <= 700 and len(doc.text) - len(prompt) >= MIN_REST
        if fits and not prompt[0].isspace() and seen[doc.name] < limit:
            seen[doc.name] += 1
            yield prompt


def training_text() -> str:
    """All text that the models are trained on, 85 million characters."""
    return "".join(doc.text for domain in domains.NAMES for doc in corpus.training_documents(domain))


def choose() -> list[Prompt]:
    """PER_DOMAIN prompts of each domain that occur in no training text."""
    text = training_text()
    chosen = [list(islice((p for p in openings(name) if p not in text), PER_DOMAIN)) for name in domains.NAMES]
    rows = zip(*chosen, strict=True)
    pairs = [(domain, prompt) for row in rows for domain, prompt in zip(domains.NAMES, row, strict=True)]
    return [Prompt(prompt, domain, seed) for seed, (domain, prompt) in enumerate(pairs)]


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m training.held_out", description="Choose the held-out prompts.")
    parser.add_argument("--output", type=Path, default=PATH)
    output = parser.parse_args(argv).output
    prompts = choose()
    output.write_text("".join(json.dumps(prompt._asdict(), ensure_ascii=False) + "\n" for prompt in prompts))
    print(f"{len(prompts)} prompts in {output}", file=sys.stderr)


if __name__ == "__main__":
    main()
