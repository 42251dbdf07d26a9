"""`python -m training.evaluate`: the figures of the model card, measured on held-out text.

- cross-entropy per domain, of documents that were held out, in nats per token and bits per byte;
- acceptance of all drafts under both verification rules: the target writes on from the held-out prompts at a
  temperature, and at every position of what it wrote the draft's distribution is compared with the target's.
  match: both draw with the same noise, do they agree? ratio: the mean of min(1, p/q), which is 1 - total variation;
- acceptance by depth in drafts of eight tokens (`depths.py`), over all domains.
"""

import argparse
import json
import math
import sys
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer
from torch import Tensor
from torch.nn import functional
from transformers import LlamaForCausalLM

from goodspeed.embedded import models, prompts
from goodspeed.exact import sampling
from training import depths, domains, family, held_out, tokenizer

TARGET, *DRAFTS = models.NAMES
TEMPERATURES = (0.0, 0.7, 1.0)
ROW = 512  # tokens of context in the cross-entropy figures
WRITTEN = 150  # tokens that the target writes on from each prompt

Family = dict[str, LlamaForCausalLM]


@torch.inference_mode()
def cross_entropy(model: LlamaForCausalLM, rows: Tensor) -> float:
    """Mean nats per token of rows [num_rows, length]; the first token of a row is not counted."""
    total = 0.0
    for row in torch.split(rows, 4):
        logits = model(input_ids=row, use_cache=False).logits[:, :-1, : tokenizer.VOCAB_SIZE]
        total += functional.cross_entropy(logits.flatten(0, 1), row[:, 1:].flatten(), reduction="sum").item()
    return total / (rows.numel() - len(rows))


def held_out_rows(tok: Tokenizer, domain: str, num_rows: int) -> tuple[Tensor, float]:
    """(rows [num_rows, ROW] of held-out documents, bytes per token)"""
    docs = domains.take(domain, 5 * ROW * num_rows, held_out=True)
    stride = max(1, sum(len(doc.text) for doc in docs) // (4 * ROW * num_rows))  # spread over all modules
    ids = [i for doc in docs[::stride] for i in [*tok.encode(doc.text).ids, tokenizer.END_ID]]
    num_rows = min(num_rows, len(ids) // ROW)
    rows = torch.tensor(ids[: num_rows * ROW]).view(num_rows, ROW)
    num_bytes = len(tok.decode(rows.flatten().tolist(), skip_special_tokens=True).encode())
    return rows, num_bytes / rows.numel()


@torch.inference_mode()
def write(target: LlamaForCausalLM, prompt_ids: list[list[int]], temperature: float) -> list[list[int]]:
    """The target's continuation of each prompt: up to WRITTEN tokens, without the end of sequence."""
    longest = max(map(len, prompt_ids))
    ids = torch.tensor([[tokenizer.END_ID] * (longest - len(p)) + p for p in prompt_ids])
    mask = torch.tensor([[0] * (longest - len(p)) + [1] * len(p) for p in prompt_ids])
    how: dict[str, Any] = {"do_sample": False}
    if temperature:
        how = {"do_sample": True, "temperature": temperature, "top_k": 0}
    output = target.generate(input_ids=ids, attention_mask=mask, max_new_tokens=WRITTEN, **how)
    texts = output[:, longest:].tolist()
    return [text[: text.index(tokenizer.END_ID)] if tokenizer.END_ID in text else text for text in texts]


@torch.inference_mode()
def distributions(model: LlamaForCausalLM, prompt: list[int], written: list[int], temperature: float) -> Tensor:
    """Probabilities [written, vocab] of each written token's position; one-hot at temperature 0."""
    logits = model(input_ids=torch.tensor([prompt + written]), use_cache=False).logits[0, len(prompt) - 1 : -1]
    logits = logits[:, : tokenizer.VOCAB_SIZE]
    if temperature == 0:
        return functional.one_hot(logits.argmax(-1), logits.shape[-1]).float()
    probs: Tensor = (logits / temperature).softmax(-1)
    return probs


def draw(probs: Tensor, seed: int, first: int) -> Tensor:
    """The match rule's token [written] at every position, of which the first is `first`."""
    positions = torch.arange(first, first + len(probs))
    return sampling.sample(probs, torch.full_like(positions, seed), positions)


def acceptance(models_: Family, tok: Tokenizer, chosen: list[prompts.Prompt], temperature: float) -> dict[str, Any]:
    """{draft: {"match": rate, "ratio": rate}} over the prompts of one domain, and one written text.

    reached: {draft: drafts with at least 0, 1, ... accepted tokens}.
    """
    prompt_ids = [tok.encode(p.prompt).ids for p in chosen]
    written = write(models_[TARGET], prompt_ids, temperature)
    sums = {name: [0.0, 0.0] for name in DRAFTS}
    reached = {name: torch.zeros(depths.DEPTH + 1, dtype=torch.int64) for name in DRAFTS}
    for line, ids, text in zip(chosen, prompt_ids, written, strict=True):
        if not text:
            continue
        target_probs = distributions(models_[TARGET], ids, text, temperature)
        target_draw = draw(target_probs, line.seed, len(ids))
        for name in DRAFTS:
            draft_probs = distributions(models_[name], ids, text, temperature)
            sums[name][0] += (draw(draft_probs, line.seed, len(ids)) == target_draw).sum().item()
            sums[name][1] += torch.minimum(target_probs, draft_probs).sum().item()
            reached[name] += depths.reached(models_[name], ids, text, temperature, line.seed, target_draw)
    total = sum(map(len, written))
    rates = {name: {"match": match / total, "ratio": ratio / total} for name, (match, ratio) in sums.items()}
    by_name = {name: numbers.tolist() for name, numbers in reached.items()}
    return {"acceptance": rates, "num_tokens": total, "sample": tok.decode(written[0]), "reached": by_name}


def measure(weights: Path, num_rows: int, per_domain: int) -> dict[str, Any]:
    """Everything the card says, one entry per domain."""
    torch.manual_seed(0)
    tok = tokenizer.load(weights / TARGET)
    loaded = {name: family.load(name, weights / name).eval() for name in models.NAMES}
    report: dict[str, Any] = {}
    for domain in domains.NAMES:
        rows, bytes_per_token = held_out_rows(tok, domain, num_rows)
        nats = {name: cross_entropy(model, rows) for name, model in loaded.items()}
        chosen = [p for p in prompts.load() if p.domain == domain][:per_domain]
        report[domain] = {
            "nats_per_token": nats,
            "bits_per_byte": {name: value / math.log(2) / bytes_per_token for name, value in nats.items()},
            "temperature": {str(t): acceptance(loaded, tok, chosen, t) for t in TEMPERATURES},
        }
        print(f"{domain}: {nats}", file=sys.stderr, flush=True)
    return report


def table(header: list[str], rows: list[list[str]]) -> str:
    """Markdown."""
    return "\n".join(f"| {' | '.join(row)} |" for row in [header, ["---"] * len(header), *rows])


def tables(report: dict[str, Any]) -> str:
    """The figures as Markdown: cross-entropy, then acceptance (at temperature 0 both rules are the same)."""
    losses = [
        [domain]
        + [f"{entry['nats_per_token'][name]:.2f} / {entry['bits_per_byte'][name]:.2f}" for name in models.NAMES]
        for domain, entry in report.items()
    ]
    columns = [
        (n, t, rule) for n in DRAFTS for t in TEMPERATURES for rule in ("match", "ratio") if t or rule == "match"
    ]
    header = [f"{n.removeprefix('tiny-draft-')} T={t:g}" + (f" {rule}" if t else "") for n, t, rule in columns]
    rates = [
        [domain] + [f"{entry['temperature'][str(t)]['acceptance'][n][rule]:.2f}" for n, t, rule in columns]
        for domain, entry in report.items()
    ]
    return table(["domain", *models.NAMES], losses) + "\n\n" + table(["domain", *header], rates)


def by_depth(report: dict[str, Any]) -> str:
    """Acceptance by depth as Markdown."""
    rows = []
    for name in DRAFTS:
        for temperature in TEMPERATURES:
            entries = [entry["temperature"][str(temperature)]["reached"][name] for entry in report.values()]
            rates = depths.rates([sum(each) for each in zip(*entries, strict=True)])
            cells = [f"{rate:.2f}" for rate in rates.by_depth]
            rows.append([f"{name.removeprefix('tiny-draft-')} T={temperature:g}", *cells, f"{rates.mean:.2f}"])
    return table(["depth", *map(str, range(1, depths.DEPTH + 1)), "accepted of 8"], rows)


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m training.evaluate", description="The model card's figures.")
    parser.add_argument("--weights", type=Path, default=models.WEIGHTS)
    parser.add_argument("--rows", type=int, default=48, help=f"rows of {ROW} tokens per domain for the cross-entropy")
    parser.add_argument(
        "--prompts", type=int, default=held_out.PER_DOMAIN, help="prompts per domain for the acceptance"
    )
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--json", action="store_true", help="the last line of standard output is one JSON object")
    args = parser.parse_args(argv)
    torch.set_num_threads(args.threads)
    report = measure(args.weights, args.rows, args.prompts)
    print(tables(report) + "\n\n" + by_depth(report))
    if args.json:
        print(json.dumps(report))


if __name__ == "__main__":
    main()
