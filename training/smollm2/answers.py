"""Has the target answer prompts: real ones that are not held out, those of the project's own making, and most of all
its own, which it asks after some of these in a row.

Several answers are drawn from each prompt: its prefill costs as much as writing an answer.
"""

import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from random import Random
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from goodspeed.engine.tokenizing.text import encode
from training import chats
from training.smollm2.stored import NUM_LIKELY, Answer
from training.smollm2.target import Batch, Target, likeliest

TEMPERATURES = (0.0, 0.0, 0.7, 1.0, 1.0, 1.0)
"""Drawn from. At temperature 1, labels are the most."""

MADE_PER_REAL = 4
ASKED_PER_OTHER = 3
NUM_BEFORE, LONGEST_BEFORE = 4, 600  # prompts before one that the target asks, and their longest, in characters
NUM_CONTEXTS, NUM_ASKED = 16, 8  # rows of such prompts that are read at once, and prompts drawn after each
SHORTEST_ASKED, LONGEST_ASKED = 5, 120  # tokens of such a prompt
ASKING = 0.9  # the temperature
LONGEST = 192  # tokens of an answer
LONG = 150  # tokens of a prompt from which more answers are drawn
NUM_DRAWN, NUM_DRAWN_LONG = 2, 4
WAITING = 400  # prompts to choose a batch of about one length from
BATCH, ROWS = 128, 40_000  # most texts of a batch, and rows of their KV cache
FEWEST_PASSAGES, MOST_PASSAGES = 20, 400

MADE = Path(__file__).parents[1] / "prompts"
"""Prompts of the project's own making in eight domains, of which no id is real; `articles.jsonl` asks for passages."""

ASKED = "asked"
"""Id of a prompt that the target asked itself."""

HERE = "\x00"
"""Stands where the target's own prompt begins."""

NEWS = "news"
"""Id of a request for a passage that has no topic."""

QUESTIONS = (
    "What is {topic}?|When was the term {topic} first used?|Who wrote the first book about {topic}?|"
    "Where is the largest collection on {topic}?|Why is {topic} important?|How many types of {topic} are there?|"
    "Which country supports work on {topic}?|What is {topic} related to?|Where does {topic} come from?|"
    "What are the benefits of {topic}?|Who received a prize for {topic}?|How does {topic} work?"
).split("|")

ENDS = "cdef"
"""Last hexadecimal digits of the sha256 of ids that are held out."""

Prompt: TypeAlias = tuple[str, str, str]
"""Domain, id and text."""


@dataclass(frozen=True)
class Job:
    """An answer to be written."""

    domain: str
    id: str  # of the prompt
    prompt: list[int]
    temperature: float
    topic: str | None = None  # of an answer that becomes a passage, or a question on it; "": neither; None: no passage


def prompts(folder: Path) -> list[Prompt]:
    """Returns the first turns of the prompts in a folder of DOMAIN.jsonl files."""
    return [(domain, chat.id, chat.turns[0]) for domain, own in chats.load(folder).items() for chat in own]


def real(folder: Path, *, held_out: bool) -> list[Prompt]:
    """Returns the prompts of a folder that are held out, or those that are not."""
    return [one for one in prompts(folder) if (sha256(one[1].encode()).hexdigest()[-1] in ENDS) == held_out]


class Jobs:
    """Draws what is to be answered. Some answers become passages, to be summarised or asked about."""

    def __init__(self, tokenizer: Any, real_prompts: list[Prompt], seed: str) -> None:
        self._tokenizer, self._real, self.seed, self._random = tokenizer, real_prompts, seed, Random(seed)
        made = prompts(MADE)
        self._articles = [(name, text) for domain, name, text in made if domain == "articles"]
        self._made = [one for one in made if one[0] != "articles"]
        self._passages: list[tuple[str, str]] = []
        self._asked: list[Prompt] = []
        self._waiting: list[Job] = []
        self._source = self._endless()

    def batch(self) -> list[Job]:
        """Returns jobs with prompts of about one length."""
        while len(self._waiting) < WAITING:
            self._waiting.append(next(self._source))
        self._waiting.sort(key=lambda job: len(job.prompt))
        at = self._random.randrange(len(self._waiting))
        times, room = _num_drawn(self._waiting[at].prompt), len(self._waiting[at].prompt) + LONGEST
        number = max(1, min(BATCH, ROWS // room) // times)
        first = max(0, min(at - number // 2, len(self._waiting) - number))
        found = self._waiting[first : first + number]
        del self._waiting[first : first + number]
        return found

    def contexts(self) -> list[Job]:
        """Returns what the target continues with a prompt of its own: prompts of a domain in a row."""
        by_domain: dict[str, list[str]] = defaultdict(list)
        for domain, _, text in (*self._real, *self._made):
            if len(text) <= LONGEST_BEFORE:
                by_domain[domain].append(text)
        domains = sorted(domain for domain, own in by_domain.items() if len(own) > NUM_BEFORE)
        if not domains:
            return []
        found = []
        for domain in self._random.choices(domains, k=NUM_CONTEXTS):
            turns = [{"role": "user", "content": text} for text in self._random.sample(by_domain[domain], NUM_BEFORE)]
            turns.append({"role": "user", "content": HERE})
            shown, _, _ = self._tokenizer.apply_chat_template(turns, tokenize=False).partition(HERE)
            ids = list(self._tokenizer.encode(shown, add_special_tokens=False))
            found += [Job(domain, ASKED, ids, ASKING)] * NUM_ASKED
        return found

    def ask(self, context: Job, tokens: list[int], ends: frozenset[int]) -> None:
        """Takes a prompt that the target asked, if it came to an end."""
        if len(tokens) >= SHORTEST_ASKED and tokens[-1] in ends:
            self._asked.append((context.domain, context.id, self._tokenizer.decode(tokens[:-1])))

    @property
    def is_short(self) -> bool:
        """True if more prompts are to be asked before the next batch."""
        return len(self._asked) < BATCH

    def again(self, job: Job) -> Job:
        """Returns the same job at another temperature."""
        is_article = job.topic is not None and job.id != ASKED
        most = (0.7, 1.0) if is_article or job.temperature == 0 else TEMPERATURES
        return replace(job, temperature=self._random.choice(most))

    def learn(self, topic: str, text: str) -> None:
        """Takes an answer as a passage, if it has a whole sentence."""
        whole = " ".join(text[: text.rfind(".") + 1].split())
        if len(whole) > 150:
            self._passages = [*self._passages, (whole, topic)][-MOST_PASSAGES:]

    def _endless(self) -> Iterator[Job]:
        while True:
            for one in self._random.sample(self._made, len(self._made)):
                yield self._own(one)
                for _ in range(min(ASKED_PER_OTHER, len(self._asked))):
                    yield self._answered(self._asked.pop(self._random.randrange(len(self._asked))))
                if len(self._passages) >= FEWEST_PASSAGES:
                    yield self._on_a_passage()
                if self._real and self._random.random() < 1 / MADE_PER_REAL:
                    yield self._job(*self._random.choice(self._real))

    def _own(self, prompt: Prompt) -> Job:
        if prompt[0] not in ("summarization", "rag") or self._random.random() < 0.4:
            return self._job(*prompt)
        if len(self._passages) < FEWEST_PASSAGES or self._random.random() < 0.25:
            name, text = self._random.choice(self._articles)
            topic = "" if name == NEWS else name
            return replace(self._job("chat", name, text), temperature=self._random.choice((0.7, 1.0)), topic=topic)
        return self._on_a_passage()

    def _on_a_passage(self) -> Job:
        passage, topic = self._random.choice(self._passages)
        is_question = topic.endswith("?")
        if not topic or (is_question and self._random.random() < 0.5):
            return self._job("summarization", NEWS, f"Summarize: {passage}")
        question = topic if is_question else self._random.choice(QUESTIONS).format(topic=topic)
        return self._job("rag", topic, f"{passage}\n{question}")

    def _answered(self, prompt: Prompt) -> Job:
        """Returns the job of an asked prompt; some answers become passages."""
        topic = (prompt[2] if prompt[2].endswith("?") else "") if prompt[0] in ("chat", "qa") else None
        return replace(self._job(*prompt), topic=topic)

    def _job(self, domain: str, name: str, text: str) -> Job:
        return Job(domain, name, encode(self._tokenizer, text, chat=True), self._random.choice(TEMPERATURES))


def write(
    target: Target, jobs: list[Job], ends: frozenset[int], random: Random, longest: int = LONGEST
) -> list[Answer]:
    """Writes the answers to jobs. ends: tokens that end one; each answer has its own."""
    different = list({id(job.prompt): job.prompt for job in jobs}.values())
    places = {id(prompt): place for place, prompt in enumerate(different)}
    batch = Batch(target, different)
    copies = torch.tensor([places[id(job.prompt)] for job in jobs])
    logits = batch.prefill()[copies]
    batch.keep(copies)
    texts = [_Text(job) for job in jobs]
    alive = texts
    while True:
        chosen = _append(alive, logits, random)
        going = [not text.is_over(ends, longest) for text in alive]
        if not any(going):
            return [text.answer() for text in texts]
        if sum(going) < 0.9 * len(alive):  # a copy of the cache costs as much as a few rows of it
            rows = torch.tensor(going).nonzero()[:, 0]
            batch.keep(rows)
            alive, chosen = [text for text, goes in zip(alive, going, strict=True) if goes], chosen[rows]
        logits = batch.step(chosen)


class _Text:
    """An answer while it grows; it takes nothing more once it is over."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.tokens: list[int] = []
        self._likely: list[Any] = []
        self._log_probs: list[Any] = []
        self._is_over = False

    def append(self, token: int, likely: Any, log_probs: Any) -> None:
        if not self._is_over:
            self.tokens.append(token)
            self._likely.append(likely)
            self._log_probs.append(log_probs)

    def is_over(self, ends: frozenset[int], longest: int) -> bool:
        self._is_over = self._is_over or self.tokens[-1] in ends or len(self.tokens) == longest
        return self._is_over

    def answer(self) -> Answer:
        job = self.job
        likely, log_probs = np.array(self._likely, np.uint16), np.array(self._log_probs, np.float16)
        prompt, tokens = np.array(job.prompt, np.int64), np.array(self.tokens, np.int64)
        return Answer(job.domain, job.id, job.temperature, prompt, tokens, likely, log_probs)


def _append(texts: list[_Text], logits: Tensor, random: Random) -> Tensor:
    """Draws a token for each text from logits [num_texts, vocab]; returns them."""
    values, ids = likeliest(logits, NUM_LIKELY)
    log_probs = values - logits.logsumexp(-1, keepdim=True)
    temperatures = torch.tensor([text.job.temperature for text in texts])
    chosen = torch.where(temperatures > 0, _drawn(logits, ids, temperatures, random), ids[:, 0])
    rows = zip(texts, chosen.tolist(), ids.numpy(), log_probs.numpy(), strict=True)
    for text, token, likely, log_prob in rows:
        text.append(token, likely, log_prob)
    return chosen


def _drawn(logits: Tensor, ids: Tensor, temperatures: Tensor, random: Random) -> Tensor:
    """Draws tokens [num_texts]; all logits are looked at only where none of the likeliest is drawn."""
    tempered = logits / temperatures.clamp(min=1e-3).unsqueeze(1)
    sums = (tempered.gather(1, ids) - tempered.logsumexp(-1, keepdim=True)).exp().cumsum(-1)
    level = torch.tensor([[random.random()] for _ in ids])
    places = (sums <= level).sum(-1)
    chosen = ids.gather(1, places.clamp(max=NUM_LIKELY - 1).unsqueeze(1))[:, 0]
    for row in (places == NUM_LIKELY).nonzero()[:, 0].tolist():
        rest = tempered[row].softmax(-1).index_fill(0, ids[row], 0.0)
        chosen[row] = random.choices(range(len(rest)), (rest + 1e-30).tolist())[0]
    return chosen


def write_for(
    target: Target, tokenizer: Any, jobs: Jobs, ends: frozenset[int], seconds: float
) -> Iterator[list[Answer]]:
    """Writes batches of answers for so long."""
    random, began, total = Random(jobs.seed), time.monotonic(), 0
    while time.monotonic() - began < seconds:
        if jobs.is_short and (contexts := jobs.contexts()):
            for context, asked in zip(contexts, write(target, contexts, ends, random, LONGEST_ASKED), strict=True):
                jobs.ask(context, asked.tokens.tolist(), ends)
        first = jobs.batch()
        drawn = [each for job in first for each in (job, *(jobs.again(job) for _ in range(_num_drawn(job.prompt) - 1)))]
        found = write(target, drawn, ends, random)
        for job, answer in zip(drawn, found, strict=True):
            if job.topic is not None:
                jobs.learn(job.topic, tokenizer.decode(answer.tokens.tolist()))
        total += sum(len(answer.tokens) for answer in found)
        spent = time.monotonic() - began
        print(f"answers: {total} tokens {spent:.0f} s, {total / spent:.0f} a second", file=sys.stderr, flush=True)
        yield found


def _num_drawn(prompt: list[int]) -> int:
    return NUM_DRAWN_LONG if len(prompt) > LONG else NUM_DRAWN
