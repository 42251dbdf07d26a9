"""All errors that GoodSpeed raises for outside causes (a user, a peer, a file), as one tree.

    GoodSpeedError
    ├── ConfigError             an option or a setting is wrong
    │   └── UnknownPolicyError  no policy, order, engine or draft source has that name
    ├── NotInstalled            a package of an extra is missing
    ├── CheckpointError         a model folder or name cannot be loaded
    │   └── UnsupportedModelError  the model would load, but compute wrong outputs
    ├── PromptError             a prompt is empty, too long, or not text
    ├── ConstraintError         a constraint on a text cannot be served
    ├── PoolExhausted           no free KV page
    ├── ProtocolError           the protocol does not allow these bytes or this message
    │   ├── MalformedMessage
    │   ├── MessageTooLarge
    │   ├── WrongVersion        a peer speaks another version of the protocol
    │   └── InvalidProposal     a draft distribution is malformed
    ├── PeerRefused             the peer refused, with a reason
    ├── PolicyError             a user's own policy failed, or returned an invalid allocation
    ├── NodeFailed              a daemon's repeated step keeps failing
    ├── RankLost                a process with a part of the target model ended or hangs
    ├── TransportError          a socket cannot be bound, reached, or written to
    ├── ServiceError            a draft node does not generate a text
    │   ├── Busy                too many texts are queued
    │   ├── Draining            the draft node is shutting down
    │   ├── VerifyAway          the verify node cannot be reached
    │   └── RequestRefused      refused by the target or by a limit, with a code
    ├── OutputError             standard output cannot be written to
    └── ProcessError            a child process ended too early, or never got ready

Each message states the problem and what to do. Broken invariants of our own are bugs and not in this tree.
"""

from importlib.util import find_spec


def reason(error: Exception) -> str:
    """Returns the system's reason why a file cannot be read or written, without path and error number."""
    return (isinstance(error, OSError) and error.strerror) or str(error)


def first_line(error: Exception) -> str:
    """Returns the first line of another library's error, without its final point; the error's type if it has none."""
    return str(error).strip().split("\n")[0].rstrip(".: ") or type(error).__name__


class GoodSpeedError(Exception):
    """Root of the tree; to be caught at a program's outermost level."""


class ConfigError(GoodSpeedError):
    """An option or a setting is wrong."""


class UnknownPolicyError(ConfigError):
    """No policy, order, engine or draft source has that name."""


class NotInstalled(GoodSpeedError):
    """Packages of one of this project's extras are not installed."""


def need(what: str, extra: str, *packages: str) -> None:
    """Raises NotInstalled if some of these packages are missing.

    what: the feature that needs the packages. extra: one or, with commas, several. GoodSpeed is in no package index:
    pip installs from its folder.
    """
    if missing := [name for name in packages if find_spec(name.replace("-", "_")) is None]:
        lacks = f"{', '.join(missing)}, which {'is' if len(missing) == 1 else 'are'} not installed"
        install = f"pip install -c constraints.txt '.[{extra}]'"
        raise NotInstalled(f"{what} needs {lacks}; in GoodSpeed's folder, try: {install}")


class CheckpointError(GoodSpeedError):
    """A model or tokenizer cannot be loaded from its name or folder."""


class UnsupportedModelError(CheckpointError):
    """The engine would compute wrong outputs with this model."""


class PromptError(GoodSpeedError):
    """A prompt cannot be served: empty, too long, or not text."""


class ConstraintError(GoodSpeedError):
    """A schema, pattern or grammar cannot be compiled, costs too much, or admits no text."""


class PoolExhausted(GoodSpeedError):
    """No free KV page remains."""


class ProtocolError(GoodSpeedError):
    """The protocol does not allow these bytes or this message: a peer's, or our own where it is too large."""


class MalformedMessage(ProtocolError):
    """A peer sent bytes that are not a message of this protocol."""


class MessageTooLarge(ProtocolError):
    """A message beyond the size limit, in either direction."""


class WrongVersion(ProtocolError):
    """A peer uses another version of this protocol; its messages cannot be decoded."""


class InvalidProposal(ProtocolError):
    """A draft distribution is malformed or does not sum to 1."""


class PeerRefused(GoodSpeedError):
    """The peer refused. code: for programs. what, what_to_do: the reason and the advice, for people."""

    def __init__(self, code: str, what: str, what_to_do: str = "") -> None:
        super().__init__(f"{what} ({code})" + (f"; {what_to_do}" if what_to_do else ""))
        self.code = code
        self.what = what
        self.what_to_do = what_to_do


class PolicyError(GoodSpeedError):
    """A user's own policy failed, or returned an invalid allocation."""


class NodeFailed(GoodSpeedError):
    """A daemon's repeated step, such as a verify round, keeps failing, whatever sessions take part."""


class RankLost(GoodSpeedError):
    """A process with a part of the target model ended or stopped responding."""


class TransportError(GoodSpeedError):
    """A socket cannot be bound, connected, or written to."""


class ServiceError(GoodSpeedError):
    """A draft node does not generate a text, or not to its end. code: for programs."""

    def __init__(self, code: str, what: str) -> None:
        super().__init__(what)
        self.code = code
        self.what = what


class Busy(ServiceError):
    """Too many texts are queued; retry later."""


class Draining(ServiceError):
    """This draft node is shutting down; use another one."""


class VerifyAway(ServiceError):
    """The verify node cannot be reached now; retry later."""


class RequestRefused(ServiceError):
    """This text cannot be generated: the request or the node that would serve it is at fault."""


class OutputError(GoodSpeedError):
    """Standard output cannot be written to: it is closed, or its disk is full."""


class ProcessError(GoodSpeedError):
    """A child process ended too early, or never got ready."""


NOT_NUMBERS = "its logits are not numbers"
"""Reason to fail a session whose KV cache may contain NaN, too; other reasons concern its rules or constraint."""
