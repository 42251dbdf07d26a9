"""Every error that GoodSpeed raises for the world (a user, a peer, a file), as one tree.

    GoodSpeedError
    ├── ConfigError             an option or a setting is wrong
    │   ├── UnknownPolicyError  no policy of that name
    │   └── NotInstalled        a package of an extra is missing
    ├── CheckpointError         a model folder or name cannot be loaded
    │   └── UnsupportedModelError  it would load, and compute a wrong answer
    ├── PromptError             a prompt is empty, too long, or not text
    ├── ConstraintError         a constraint on a text cannot be served
    ├── PoolExhausted           no free page of key/value memory
    ├── ProtocolError           bytes or a message from a peer are not acceptable
    │   ├── MalformedMessage
    │   ├── MessageTooLarge
    │   ├── WrongVersion        a peer speaks another version of the protocol
    │   └── InvalidProposal     a draft distribution is not one
    ├── PeerRefused             the peer refused, and said why
    ├── PolicyError             a policy of one's own failed, or shared out what it must not
    ├── NodeFailed              what a daemon does again and again fails every time
    ├── RankLost                a process that holds a part of the target model ended, or answers no more
    ├── TransportError          a socket cannot be bound, reached, or written to
    ├── ServiceError            a draft node does not write a text
    │   ├── Busy                too many texts wait already
    │   ├── Draining            it is shutting down
    │   ├── VerifyAway          the verify node cannot be reached
    │   └── RequestRefused      by the target or by a limit, with a code
    ├── OutputError             standard output cannot be written to
    ├── ChatError               a conversation over HTTP cannot begin, or go on
    └── ProcessError            a process that we started ended too early, or never got ready

Each message says what was wrong and what to do. Our own broken invariants are not here: they are bugs.
"""


def reason(error: OSError | UnicodeDecodeError) -> str:
    """Returns why a file cannot be read, in the system's words, without its path and the error's number."""
    return (isinstance(error, OSError) and error.strerror) or str(error)


class GoodSpeedError(Exception):
    """Root of the tree; catch it at the edge of a program."""


class ConfigError(GoodSpeedError):
    """An option or a setting is wrong."""


class UnknownPolicyError(ConfigError):
    """No policy of that name is registered."""


class NotInstalled(ConfigError):
    """Packages of one of this project's extras are not installed."""

    def __init__(self, what: str, extra: str, *packages: str) -> None:
        """what: needs the packages. The index has no package of this name, so the extra comes from the folder."""
        missing = f"{', '.join(packages)}, which {'is' if len(packages) == 1 else 'are'} not installed"
        install = f"pip install -c constraints.txt '.[{extra}]'"
        super().__init__(f"{what} needs {missing}; in GoodSpeed's folder, try: {install}")


class CheckpointError(GoodSpeedError):
    """A model or tokenizer cannot be loaded from that name or folder."""


class UnsupportedModelError(CheckpointError):
    """The engine would compute a wrong answer with this model."""


class PromptError(GoodSpeedError):
    """A prompt cannot be served: empty, too long, or not text."""


class ConstraintError(GoodSpeedError):
    """A schema, pattern or grammar cannot be compiled, costs too much, or leaves no text."""


class PoolExhausted(GoodSpeedError):
    """No free page of key/value memory is left."""


class ProtocolError(GoodSpeedError):
    """A peer sent something that is not acceptable."""


class MalformedMessage(ProtocolError):
    """A peer sent bytes that are no message of this protocol."""


class MessageTooLarge(ProtocolError):
    """A message beyond the size limit, in either direction."""


class WrongVersion(ProtocolError):
    """A peer speaks another version of this protocol; nothing else it says can be understood."""


class InvalidProposal(ProtocolError):
    """A draft distribution that is malformed or does not add up."""


class PeerRefused(GoodSpeedError):
    """The peer refused; `code` is for programs, `what` happened and `what_to_do` are for people."""

    def __init__(self, code: str, what: str, what_to_do: str = "") -> None:
        super().__init__(f"{what} ({code})" + (f"; {what_to_do}" if what_to_do else ""))
        self.code = code
        self.what = what
        self.what_to_do = what_to_do


class PolicyError(GoodSpeedError):
    """A policy of a user's own failed, or shared out what it must not."""


class NodeFailed(GoodSpeedError):
    """Round after round fails, or what else a daemon does again and again, whichever sessions take part."""


class RankLost(GoodSpeedError):
    """A process that holds a part of the target model ended, or does not answer any more."""


class TransportError(GoodSpeedError):
    """A socket cannot be bound, connected, or written to."""


class ServiceError(GoodSpeedError):
    """A draft node does not write a text, or not to its end; the code is for programs."""

    def __init__(self, code: str, what: str) -> None:
        super().__init__(what)
        self.code = code
        self.what = what


class Busy(ServiceError):
    """Too many texts wait for their turn already; ask again later."""


class Draining(ServiceError):
    """This draft node is shutting down; ask another one."""


class VerifyAway(ServiceError):
    """The verify node cannot be reached now; ask again later."""


class RequestRefused(ServiceError):
    """This text cannot be written: the request is at fault, or the node that would serve it."""


class OutputError(GoodSpeedError):
    """Standard output cannot be written to: it is closed, or its disk is full."""


class ChatError(GoodSpeedError):
    """The node of a chat cannot be reached, refuses, or breaks off its answer."""


class ProcessError(GoodSpeedError):
    """A process that we started ended too early, or never got ready."""


NOT_NUMBERS = "its logits are not numbers"
"""Why the target gives a session up whose KV cache may be no numbers, either; its other reasons are rules and forms."""
