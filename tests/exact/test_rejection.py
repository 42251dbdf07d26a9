"""The two verification rules: cases by hand, then the law, then proof that the tests of the law can fail."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from operator import eq

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from goodspeed.exact import rejection
from goodspeed.exact.proposals import decode, make
from goodspeed.exact.rejection import overlaps, ratios, verify_match, verify_ratio
from goodspeed.exact.sampling import Role, SamplingBatch, sample, to_probs, uniform
from goodspeed.wire.messages import Sampling
from tests.exact.chi_square import REJECT, fits

# match


def match(target: list[int], draft: list[int], num_drafted: int | None = None) -> tuple[int, int]:
    drafted = torch.tensor([len(draft) if num_drafted is None else num_drafted])
    num_accepted, next_token = verify_match(torch.tensor([target]), torch.tensor([draft]).long(), drafted)
    return int(num_accepted), int(next_token)


def test_match_by_hand():
    assert match([5, 6, 7, 8], [5, 6, 7]) == (3, 8)  # all accepted, and the bonus
    assert match([5, 6, 7, 8], [5, 9, 7]) == (1, 6)  # rejected at once, what follows does not count
    assert match([5, 6, 7, 8], [4, 6, 7]) == (0, 5)
    assert match([5], []) == (0, 5)  # an empty draft still gives a token
    assert match([5, 6, 7, 8], [5, 6, 7], num_drafted=2) == (2, 7)
    assert match([5, 6, 7, 8], [5, 6, 7], num_drafted=0) == (0, 5)


@dataclass(frozen=True)
class Chain:
    """A model that looks at one token back: rows of next-token probabilities."""

    probs: Tensor  # [vocab, vocab]

    @classmethod
    def random(cls, vocab: int, seed: int, temperature: float = 1.0, spread: float = 1.0) -> "Chain":
        logits = torch.randn(vocab, vocab, generator=torch.Generator().manual_seed(seed)) * spread
        return cls(to_probs(logits, SamplingBatch.of([Sampling(temperature=temperature)], [vocab])))

    def after(self, tokens: Tensor) -> Tensor:
        return self.probs[tokens]

    def write(self, seeds: Tensor, length: int) -> Tensor:
        """Returns what this model alone writes after token 0 [batch, length]."""
        tokens = [torch.zeros_like(seeds)]
        for position in range(length):
            tokens.append(sample(self.after(tokens[-1]), seeds, torch.full_like(seeds, position)))
        return torch.stack(tokens[1:], 1)


NUM_SESSIONS = 500


def any_token(last: Tensor, position: Tensor) -> Tensor:
    return torch.randint(0, 8, last.shape, generator=torch.Generator().manual_seed(int(position.sum())))


PROPOSE: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "random": lambda last, seeds, position: any_token(last, position),
    "by the same noise": lambda last, seeds, position: sample(Chain.random(8, seed=2).after(last), seeds, position),
    "greedy": lambda last, seeds, position: Chain.random(8, seed=2).after(last).argmax(-1),
}


@pytest.mark.parametrize("propose", PROPOSE.values(), ids=PROPOSE)
def test_match_writes_what_the_target_alone_would(propose):
    """Whatever is drafted and however many, up to the last token."""
    target = Chain.random(8, seed=1)
    length, max_len = 30, 4
    seeds = torch.arange(NUM_SESSIONS)
    rows = torch.arange(NUM_SESSIONS)
    generator = torch.Generator().manual_seed(0)
    text = torch.zeros(NUM_SESSIONS, length + max_len + 2, dtype=torch.int64)  # column 0 is the prompt
    written = torch.zeros(NUM_SESSIONS, dtype=torch.int64)
    while int(written.min()) < length:
        num_drafted = torch.randint(0, max_len + 1, (NUM_SESSIONS,), generator=generator)
        start = written.clamp(max=length)
        tokens = [text[rows, start]]
        for step in range(max_len):
            tokens.append(propose(tokens[-1], seeds, start + step))
        chosen = [sample(target.after(token), seeds, start + step) for step, token in enumerate(tokens)]
        draft = torch.stack(tokens[1:], 1)
        num_accepted, next_token = verify_match(torch.stack(chosen, 1), draft, num_drafted)
        for step in range(max_len):
            accepted = step < num_accepted
            text[rows[accepted], start[accepted] + 1 + step] = draft[accepted, step]
        text[rows, start + 1 + num_accepted] = next_token
        written = start + 1 + num_accepted
    assert torch.equal(text[:, 1 : length + 1], target.write(seeds, length))


# ratio, by hand


def ratio(p, tokens, q, accept, final):
    one_row = (torch.tensor([each]) for each in (p, tokens, q, len(tokens), accept, final))
    num_accepted, next_token = verify_ratio(*one_row)
    return int(num_accepted), int(next_token)


P = [0.5, 0.25, 0.25, 0.0]
Q = [0.25, 0.5, 0.0, 0.25]
BONUS = [0.0, 0.0, 0.0, 1.0]


def test_ratio_by_hand():
    assert ratio([P, BONUS], [0], [Q], [0.99], 0.0) == (1, 3)  # p/q = 2: always accepted
    assert ratio([P, BONUS], [1], [Q], [0.49], 0.0) == (1, 3)  # p/q = 1/2
    assert ratio([P, BONUS], [1], [Q], [0.5], 0.0) == (0, 0)  # strictly below
    # The residual is 1/4, 0, 1/4, 0.
    assert ratio([P, BONUS], [1], [Q], [0.5], 0.49) == (0, 0)
    assert ratio([P, BONUS], [1], [Q], [0.5], 0.5) == (0, 2)
    assert ratio([P, BONUS], [1], [Q], [0.5], 1 - 2.0**-24) == (0, 2)
    # A first rejection ends it.
    assert ratio([P, P, BONUS], [1, 0], [Q, Q], [0.9, 0.0], 0.6) == (0, 2)
    assert ratio([P, P, BONUS], [0, 1], [Q, Q], [0.9, 0.9], 0.6) == (1, 2)


def test_ratio_accepts_no_token_of_probability_zero():
    assert ratio([P, BONUS], [3], [Q], [0.0], 0.0) == (0, 0)  # p = 0
    assert ratio([P, BONUS], [2], [Q], [0.0], 0.0) == (0, 0)  # q = 0: never sampled from this
    assert ratio([P, BONUS], [3], [P], [0.0], 0.0) == (0, 0)  # both; and nothing is left of p - q


def test_ratio_without_a_residual_draws_from_the_target():
    for final, token in ((0.0, 0), (0.5, 1), (0.8, 2)):
        assert ratio([P, BONUS], [3], [P], [0.0], final) == (0, token)


def test_ratio_of_an_empty_draft_is_the_target():
    p, q, none, drafted = torch.tensor([[P], [BONUS]]), torch.zeros(2, 0, 4), torch.zeros(2, 0), torch.tensor([0, 0])
    num_accepted, next_token = verify_ratio(p, none.long(), q, drafted, none, torch.tensor([0.6, 0.6]))
    assert num_accepted.tolist() == [0, 0]
    assert next_token.tolist() == [1, 3]
    assert overlaps(p, q, drafted).shape == (2, 0)


def test_vocabularies_that_differ_in_padding():
    narrow = [0.25, 0.75]
    assert ratio([P, BONUS], [1], [narrow], [0.34], 0.9) == (0, 2)  # residual 1/4, 0, 1/4, 0
    wide = [*Q[:3], 0.0, 0.25]
    assert ratio([P, BONUS], [0], [wide], [0.99], 0.0) == (1, 3)
    assert ratio([P, BONUS], [1], [wide], [0.5], 0.5) == (0, 2)
    assert ratio([P, BONUS], [4], [wide], [0.0], 0.0) == (0, 0)  # an id that the target does not have
    assert ratio([P, BONUS], [2], [narrow], [0.0], 0.0) == (0, 0)  # an id that the draft does not have


def test_agreement_counts_every_drafted_position():
    p = torch.tensor([[P, P, P, P]])
    q = torch.tensor([[Q, Q, [torch.nan] * 4]])
    drafted = torch.tensor([2])
    assert ratios(p, torch.tensor([[1, 0, 1]]), q, drafted).tolist() == [[0.5, 1.0, 0.0]]
    assert ratios(p, torch.tensor([[2, 3, 1]]), q, drafted).tolist() == [[0.0, 0.0, 0.0]]
    assert overlaps(p, q, drafted).tolist() == [[0.5, 0.5, 0.0]]  # whatever was drawn
    wide, narrow = torch.tensor([[[*Q[:3], 0.0, 0.25]]]), torch.tensor([[[0.25, 0.75]]])
    assert overlaps(p, wide, torch.tensor([1])).tolist() == [[0.5]]
    assert overlaps(p, narrow, torch.tensor([1])).tolist() == [[0.5]]


def test_a_row_without_a_token_to_draw_agrees_with_nothing():
    nothing = [float("nan")] * 4
    p, q = torch.tensor([[P, nothing, P]]), torch.tensor([[Q, Q, Q]])
    drafted = torch.tensor([3])
    assert overlaps(p, q, drafted)[0, 1] == 0
    assert ratios(p, torch.tensor([[0, 0, 0]]), q, drafted)[0, 1] == 0
    assert overlaps(p, q, drafted)[0, 2] == overlaps(p, q, drafted)[0, 0] > 0


@settings(max_examples=60, derandomize=True)
@given(st.lists(st.integers(0, 4), min_size=1, max_size=5), st.integers(0, 1 << 30))
def test_ragged_rows_give_what_they_give_alone(lengths, seed):
    generator = torch.Generator().manual_seed(seed)
    batch, longest = len(lengths), max(lengths)
    p = torch.rand(batch, longest + 1, 6, generator=generator).softmax(-1)
    q = torch.rand(batch, longest, 6, generator=generator).mul(3).softmax(-1)
    tokens = torch.randint(0, 6, (batch, longest), generator=generator)
    accept = torch.rand(batch, longest, generator=generator)
    final = torch.rand(batch, generator=generator)
    for row, length in enumerate(lengths):  # what stands beyond must not matter
        p[row, length + 1 :] = q[row, length:] = accept[row, length:] = torch.nan
        tokens[row, length:] = torch.randint(-5, 99, (longest - length,), generator=generator)
    drafted = torch.tensor(lengths)
    together = verify_ratio(p, tokens, q, drafted, accept, final)
    shared, probabilities = overlaps(p, q, drafted), ratios(p, tokens, q, drafted)
    for row, n in enumerate(lengths):
        one = slice(row, row + 1)
        alone = verify_ratio(p[one, : n + 1], tokens[one, :n], q[one, :n], drafted[one], accept[one, :n], final[one])
        assert (int(together[0][row]), int(together[1][row])) == (int(alone[0]), int(alone[1]))
        assert torch.equal(shared[row, :n], overlaps(p[one, : n + 1], q[one, :n], drafted[one])[0])
        assert not shared[row, n:].any()
        own = ratios(p[one, : n + 1], tokens[one, :n], q[one, :n], drafted[one])
        assert torch.equal(probabilities[row, :n], own[0])


# ratio, the law: the joint distribution of the first two tokens, over the real path

VOCAB = 20
KINDS = {"dense-fp32": {}, "dense-fp16": {}, "lattice": {"k": 5}, "lattice whole": {"k": 256}}


def proposal_of(probs: Tensor, kind: str):
    return make(probs, kind.split()[0], **KINDS[kind])


def over_the_wire(table: Tensor, kind: str) -> Tensor:
    """Returns what arrives of draft rows [vocab, vocab], one for each token before: sent once, used by all sessions."""
    return decode(b"".join(proposal_of(table, kind).pack()), len(table), VOCAB)


@dataclass(frozen=True)
class Setup:
    """Two models at a temperature, what drafts are sampled from, what is sent, and whose noise accepts."""

    target: Tensor  # [vocab, vocab]
    sampled: Callable[[Tensor, Tensor], Tensor]  # previous tokens [batch], noise [batch] -> tokens [batch]
    sent: Tensor  # [vocab, vocab], as decoded
    accept_role: Role = Role.ACCEPT


def honest(kind: str, temperature: float) -> Setup:
    target = Chain.random(VOCAB, 1, temperature, spread=1.5).probs
    table = Chain.random(VOCAB, 2, temperature, spread=1.5).probs
    return Setup(target, lambda last, noise: proposal_of(table[last], kind).sample(noise), over_the_wire(table, kind))


def run_round(setup: Setup, last: Tensor, lengths: Tensor, round_: int) -> tuple[Tensor, Tensor]:
    """Draft, verify: (tokens [batch, 3], number of them [batch]) after the tokens `last`, one session per seed."""
    seeds = torch.arange(len(last))
    before = [last]  # tokens that positions follow
    for position in range(2):
        before.append(setup.sampled(before[-1], uniform(seeds, Role.DRAFT, 0, round_, position)))
    draft = torch.stack(before[1:], 1)
    num_accepted, next_token = verify_ratio(
        setup.target[torch.stack(before, 1)],
        draft,
        setup.sent[torch.stack(before[:2], 1)],
        lengths,
        uniform(seeds.unsqueeze(1), setup.accept_role, 0, round_, torch.arange(2)),
        uniform(seeds, Role.FINAL, 0, round_, 0),
    )
    tokens = torch.nn.functional.pad(draft, (0, 1)).scatter(1, num_accepted.unsqueeze(1), next_token.unsqueeze(1))
    return tokens, num_accepted + 1


def joint_fit(setup: Setup, num_sessions: int = 60_000) -> float:
    """p-value of the first two tokens after token 0 being what the target alone writes."""
    lengths = torch.arange(num_sessions) % 3  # drafts of no, one and two tokens
    tokens, count = run_round(setup, torch.zeros(num_sessions, dtype=torch.int64), lengths, 0)
    following, _ = run_round(setup, tokens[:, 0], 2 - lengths, 1)
    second = torch.where(count > 1, tokens[:, 1], following[:, 0])
    exact = setup.target[0].double().unsqueeze(1) * setup.target.double()  # [first, second]
    return fits(tokens[:, 0] * VOCAB + second, exact.flatten())


@pytest.mark.parametrize("temperature", [0.7, 1.0])
@pytest.mark.parametrize("kind", KINDS)
def test_ratio_keeps_the_joint_distribution_of_two_tokens(kind, temperature):
    assert joint_fit(honest(kind, temperature)) > REJECT


FAULTS: dict[str, Callable[[str], Setup]] = {
    # Samples from the whole distribution and sends the lattice that it is rounded to.
    "rounded after sampling": lambda kind: replace(honest(kind, 1.0), sent=honest("lattice", 1.0).sent),
    # Drafts at 0.7 and sends the probabilities at 1.
    "sent another temperature": lambda kind: replace(honest(kind, 0.7), sent=honest(kind, 1.0).sent),
    # One number decides what is drafted and whether that is accepted.
    "shared noise": lambda kind: replace(honest(kind, 1.0), accept_role=Role.DRAFT),
}
THOROUGH = [("rounded after sampling", kind) for kind in ("dense-fp32", "dense-fp16")]
THOROUGH += [("shared noise", kind) for kind in KINDS]


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        ("sent another temperature", "dense-fp32"),
        *(pytest.param(*each, marks=pytest.mark.thorough) for each in THOROUGH),
    ],
)
def test_the_test_of_the_joint_distribution_catches(fault, kind):
    assert joint_fit(FAULTS[fault](kind)) < REJECT**2


@given(
    st.lists(st.tuples(st.lists(st.integers(0, 2), max_size=5), st.lists(st.integers(0, 2), min_size=6, max_size=6)))
)
@settings(max_examples=100, derandomize=True)
def test_one_row_on_the_host_is_judged_as_in_a_batch(rows):
    for draft, target in rows:
        num_drafted = torch.tensor([len(draft)])
        draft_tokens, target_tokens = torch.tensor([draft], dtype=torch.int64), torch.tensor([target[: len(draft) + 1]])
        accepted, next_token = verify_match(target_tokens, draft_tokens, num_drafted)
        num_accepted, agreement = rejection.match(target[: len(draft) + 1], draft)
        assert (num_accepted, target[num_accepted]) == (int(accepted), int(next_token))
        assert agreement == sum(map(eq, draft, target))
