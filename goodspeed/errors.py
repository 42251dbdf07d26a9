"""Every error that GoodSpeed raises for the world (a user, a peer, a file), as one tree.

    GoodSpeedError
    ├── ConfigError             an option or a setting is wrong
    │   └── UnknownPolicyError  no policy of that name
    ├── CheckpointError         a model folder or name cannot be loaded
    │   └── UnsupportedModelError  it would load, and compute a wrong answer
    ├── PromptError             a prompt is empty, too long, or not text
    ├── PoolExhausted           no free page of key/value memory
    ├── ProtocolError           bytes or a message from a peer are not acceptable
    │   ├── MalformedMessage
    │   ├── MessageTooLarge
    │   ├── WrongVersion        a peer speaks another version of the protocol
    │   └── InvalidProposal     a draft distribution is not one
    ├── RefusedError            the peer refused, and said why
    ├── TargetError             the target model fails on everything
    ├── TransportError          a socket cannot be bound, reached, or written to
    └── ProcessError            a process that we started ended too early, or never got ready

Each message says what was wrong and what to do. Our own broken invariants are not here: they are bugs.
"""


class GoodSpeedError(Exception):
    """Root of the tree; catch it at the edge of a program."""


class ConfigError(GoodSpeedError):
    """An option or a setting is wrong."""


class UnknownPolicyError(ConfigError):
    """No policy of that name is registered."""


class CheckpointError(GoodSpeedError):
    """A model or tokenizer cannot be loaded from that name or folder."""


class UnsupportedModelError(CheckpointError):
    """The engine would compute a wrong answer with this model."""


class PromptError(GoodSpeedError):
    """A prompt cannot be served: empty, too long, or not text."""


class PoolExhausted(GoodSpeedError):
    """No free page of key/value memory is left."""


class ProtocolError(GoodSpeedError):
    """A peer sent something that is not acceptable."""


class MalformedMessage(ProtocolError):
    """Bytes that are no message of this protocol."""


class MessageTooLarge(ProtocolError):
    """A message beyond the size limit, in either direction."""


class WrongVersion(ProtocolError):
    """A peer speaks another version of this protocol; nothing else it says can be understood."""


class InvalidProposal(ProtocolError):
    """A draft distribution that is malformed or does not add up."""


class RefusedError(GoodSpeedError):
    """The peer refused, by code; `what` happened and `what_to_do` about it."""

    def __init__(self, code: str, what: str, what_to_do: str = "") -> None:
        super().__init__(f"{what} ({code})" + (f"; {what_to_do}" if what_to_do else ""))
        self.code = code
        self.what = what
        self.what_to_do = what_to_do


class TargetError(GoodSpeedError):
    """The target model fails round after round, whoever takes part."""


class TransportError(GoodSpeedError):
    """A socket cannot be bound, connected, or written to."""


class ProcessError(GoodSpeedError):
    """A process that we started ended too early, or never got ready."""
