"""Refusals of draft nodes' messages, and the checks of messages: each returns a `Refusal`, or None."""

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from goodspeed.constraint.compiling import Constraints
from goodspeed.errors import InvalidProposal
from goodspeed.exact.proposal_bytes import spans
from goodspeed.wire.enrolled import Enrolled
from goodspeed.wire.fields import MAX_PROMPT_LOGPROBS
from goodspeed.wire.handshake import VERSION, Hello, Welcome
from goodspeed.wire.messages import Ack, Close, Draft, OpenSession, Refusal, RefusalCode, UpMessage
from verify_node.clients.client import Client
from verify_node.session.session import Session

AboutSession: TypeAlias = OpenSession | Draft | Ack | Close

MAX_KEPT = 4 * MAX_PROMPT_LOGPROBS
"""Most prompt logprobs retained for one client until acknowledged; each takes about 80 bytes."""


def refusal(code: RefusalCode, what: str, what_to_do: str) -> Refusal:
    """Returns a refusal of no session yet, whose code mypy checks: the wire's own is any text, for later releases."""
    return Refusal(code, what, what_to_do)


HELLO_FIRST = refusal("hello_first", "this verify node does not know you", "send Hello, then reopen")
NOT_OWNER = refusal("not_owner", "this session belongs to another client", "use your own sessions, with random ids")
NOT_ENROLLED = refusal(
    "not_enrolled",
    "the key of this draft node is not enrolled at the verify node (any more)",
    "ask its operator to put your public file into the --enrolled folder; you may keep trying",
)
CHANGED = refusal("hello_first", "the enrolment of this key was changed", "send Hello again, then reopen")
ANOTHERS_PEER = refusal("not_owner", "another key used this peer's name", "connect again under your own name")
STOPPING = refusal(
    "draining", "this verify node is stopping", "keep the committed tokens, and send Hello until a verify node answers"
)
NOT_DRAWN = refusal(
    "proposal",
    "the drafts of this client are not drawn from the distributions that it sends (error probability 1e-6); its "
    "sessions continue under match, and its distributions are ignored",
    "send exactly the distributions that you sample from, or open sessions under match",
)
NOT_ACKNOWLEDGED = refusal(
    "not_acknowledged",
    "this session acknowledged no new tokens for too long, or after too many repeats",
    "reopen it with the committed tokens",
)
NOT_PROMISED = refusal(
    "not_promised",
    "this service level cannot be promised now in addition to earlier promises",
    "ask again later, for a longer TTFT or TPOT, with a smaller max_tokens, or with otherwise: best_effort",
)
HALF_DONE = refusal(
    "unknown_session", "this session ended with a round that failed", "reopen it with the committed tokens"
)
NOT_OPEN = refusal("unknown_session", "this session is not open here", "reopen it with the committed tokens")


def check_principal(principal: str | None, enrolled: Mapping[str, Enrolled], message: UpMessage) -> Refusal | None:
    """Checks that a message's key is enrolled, and under the Hello's name; the register checks the connection."""
    record = enrolled.get(principal) if principal is not None else None
    if record is None:
        return NOT_ENROLLED
    if isinstance(message, Hello) and message.name != record.name:
        what = f"this key is enrolled as {record.name!r}, not as {message.name!r}"
        return refusal("wrong_name", what, "use the name that is enrolled, or enrol the other")
    return None


def check_hello(hello: Hello, welcome: Welcome) -> Refusal | None:
    """Checks that the peer speaks this version of the protocol and has the target's tokenizer."""
    if hello.version != VERSION:
        what = f"the draft node speaks version {hello.version} of the protocol, not {VERSION}"
        return refusal("version", what, "run the same release of GoodSpeed on both nodes")
    if hello.tokenizer != welcome.tokenizer:
        model = f"--model {hello.draft_model}" if hello.draft_model else "its --tokenizer"
        what = f"this draft node ({model}) has another tokenizer than the target {welcome.target}"
        what_to_do = "choose a draft model of the target's family, or --model none with the target's --tokenizer"
        return refusal("tokenizer", what, what_to_do)
    return None


def check_open(opened: OpenSession, client: Client, known: Session | None, num_free: int) -> Refusal | None:
    """Checks that the client may open or reopen this session. known: the open session of the same id."""
    if known is None and num_free <= 0:
        return refusal("too_many_sessions", "this client cannot open more sessions now", "try again later")
    if known is not None and known.client is not client:
        return NOT_OWNER
    if known is not None and opened.epoch < known.epoch:
        return refusal("stale_epoch", f"epoch {opened.epoch} is below {known.epoch}", "raise the epoch to reopen")
    return None


def target_failed(why: str) -> Refusal:
    """The target model could not compute this session, and would fail again."""
    return refusal("failed", f"the target model failed on this session: {why}", "try another prompt, or a shorter one")


def round_failed(why: str) -> Refusal:
    """A round with only this session failed, and would fail again."""
    return refusal("failed", f"the round of this session failed: {why}", "try another prompt, or a shorter one")


def message_failed(why: str) -> Refusal:
    """A message raised an exception: an error of this program, at the expense of the message's session."""
    return refusal("failed", f"this verify node failed on a message: {why}", "see its log, and ask again")


def wrong_proposal(why: str) -> Refusal:
    """The distributions sent with a draft are not valid; only the draft is dropped."""
    return refusal("proposal", why, "send exactly the distributions sampled from")


def does_not_compile(why: str) -> Refusal:
    """The constraint is invalid, or too costly."""
    return refusal("constraint", f"constraint: {why}", "send another constraint, or ask without one")


def compiler_failed(why: str) -> Refusal:
    """No constraint can be compiled now."""
    return refusal("failed", why, "ask again later, or without a constraint")


def constraint_failed(why: str) -> Refusal:
    """The session cannot satisfy its constraint any more, because of the constraint or of its text."""
    what = f"the text cannot continue under its constraint: {why}"
    return refusal("constraint", what, "send a simpler constraint, or ask without one")


def check_text(opened: OpenSession, welcome: Welcome) -> Refusal | None:
    """Checks that the target can continue this text as requested."""
    if not opened.prompt:
        return refusal("prompt", "the prompt is empty", "send at least one token")
    num_tokens = len(opened.prompt) + len(opened.committed)
    if num_tokens >= welcome.context_len:
        what = f"{num_tokens} tokens leave no room in a context of {welcome.context_len}"
        return refusal("prompt", what, "shorten the prompt")
    if len(opened.committed) >= opened.max_tokens:
        what = f"{len(opened.committed)} committed tokens reach max_tokens"
        return refusal("prompt", what, "the session is complete")
    biases = opened.logit_rules.logit_bias if opened.logit_rules is not None else ()
    return (
        _check_vocabulary(opened.prompt + opened.committed, welcome.vocab_size)
        or _check_vocabulary([each.token for each in biases], welcome.vocab_size, "logit_bias: ")
        or _check_min_tokens(opened, welcome.vocab_size)
    )


def check_prompt_logprobs(opened: OpenSession, num_kept: int) -> Refusal | None:
    """Checks the number of requested prompt logprobs. num_kept: prompt logprobs that its client still waits for."""
    wanted = num_prompt_logprobs(opened)
    if wanted > MAX_PROMPT_LOGPROBS:
        what = f"{wanted} prompt logprobs exceed the limit of {MAX_PROMPT_LOGPROBS}"
        return refusal("unsupported", what, "shorten the prompt, or ask for fewer alternatives")
    if num_kept and num_kept + wanted > MAX_KEPT:
        what = "this client waits for too many prompt logprobs"
        return refusal("too_many_prompt_logprobs", what, "try again later, or open other sessions")
    return None


def num_prompt_logprobs(opened: OpenSession) -> int:
    return 0 if opened.num_prompt_logprobs is None else len(opened.prompt) * (1 + opened.num_prompt_logprobs)


def check_constraint(opened: OpenSession, constraints: Constraints | None) -> Refusal | None:
    """Refuses a session with a constraint that could not end its text. constraints: None: none are served."""
    if opened.constraint is None:
        return None
    if constraints is None:
        return refusal("unsupported", "constraints are not supported here", "request only what Welcome announces")
    if not any(token in constraints.table.eos_ids for token in opened.stop_ids):
        what = "a constrained text needs an end-of-text token of the target among stop_ids, and has none"
        return refusal("constraint", what, "send Welcome's eos_ids")
    return None


def _check_min_tokens(opened: OpenSession, vocab_size: int) -> Refusal | None:
    """Checks that max_tokens permits min_tokens, and that a token remains to be drawn at every position."""
    if opened.min_tokens > opened.max_tokens:
        what = f"min_tokens {opened.min_tokens} is above max_tokens {opened.max_tokens}"
        return refusal("malformed", what, "lower min_tokens")
    if opened.min_tokens and len({token for token in opened.stop_ids if token < vocab_size}) == vocab_size:
        what = f"min_tokens {opened.min_tokens} leaves no token to draw: every token is a stop id"
        return refusal("unsupported", what, "omit min_tokens or a stop id")
    return None


def check_session(session: Session, client: Client, epoch: int) -> Refusal | None:
    """Checks that a message's client and epoch are those of the open session."""
    if session.client is not client:
        return NOT_OWNER
    if epoch > session.epoch:
        return NOT_OPEN
    if epoch < session.epoch:
        return refusal("stale_epoch", f"epoch {epoch} is below {session.epoch}", "drop messages of the old epoch")
    return None


def check_draft(draft: Draft, session: Session, vocab_size: int) -> Refusal | None:
    """Checks that a draft may be usable. Accepts a draft that the text has overtaken: its sender is not at fault."""
    return check_base(draft, session) or _check_drawn(draft, session) or _check_vocabulary(draft.tokens, vocab_size)


def _check_drawn(draft: Draft, session: Session) -> Refusal | None:
    """Checks that a draft has a proposal if and only if its session's rule needs one; under ratio it is no tree."""
    if session.opened.verification == "match":
        if draft.proposal is not None:
            return refusal("proposal", "a draft under match has a proposal", "omit it, or open with ratio")
        return None
    if not draft.tokens:
        return None
    if draft.proposal is None:
        return refusal("proposal", "a draft under ratio has no proposal", "send the distributions sampled from")
    if draft.parents is not None:
        return refusal("proposal", "a draft under ratio is a tree", "send a chain")
    return None


def check_proposal(draft: Draft, vocab_size: int) -> Refusal | None:
    """Checks the sizes of a draft's distributions; the target checks the probabilities."""
    try:
        if draft.proposal is not None:
            spans(draft.proposal, len(draft.tokens), vocab_size)
    except InvalidProposal as error:
        return wrong_proposal(str(error))
    return None


def check_base(message: Ack | Draft, session: Session) -> Refusal | None:
    """Checks that the session has reached the length that its draft node reports."""
    if message.base_len > len(session.tokens):
        what = f"{message.base_len} tokens exceed the {len(session.tokens)} committed here"
        return refusal("wrong_base", what, "reopen the session")
    return None


def _check_vocabulary(tokens: Sequence[int], vocab_size: int, where: str = "") -> Refusal | None:
    if (most := max(tokens, default=0)) >= vocab_size:
        what = f"{where}token id {most} is outside the target's vocabulary of {vocab_size}"
        return refusal("vocabulary", what, "use ids of the target's tokenizer only")
    return None
