"""Reads the keys that may connect from the enrolment folder, again whenever a file in it changes."""

import logging
import time
from collections.abc import Callable, Container, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TypeAlias

from goodspeed.errors import ConfigError
from goodspeed.serving.events import Sentence
from goodspeed.untrusted import file_state
from goodspeed.wire.enrolled import Enrolled
from goodspeed.wire.keys import read_enrolled

logger = logging.getLogger("goodspeed.enrolment")

LOOK_S = 0.2
"""Least time between two checks of the folder because of unknown keys, in seconds."""

MARK = ".pub"

State: TypeAlias = tuple[int, ...] | None  # values that change with a file; None: it cannot be read


class Enrolment:
    """Clients by key, from the public files in a folder. A broken or clashing file enrols no client."""

    def __init__(self, folder: str, tiers: Container[str] = ()) -> None:
        """Raises ConfigError for an unreadable folder, or one with two files of the same key or name.

        tiers: names of this node's service levels.
        """
        self.folder = Path(folder)
        self._tiers = tiers
        self.enrolled: dict[str, Enrolled] = {}
        self.on_change: Callable[[], None] = lambda: None
        self.say: Callable[[Iterator[Sentence]], None] = lambda sentences: None  # status lines of changes
        self.on_refused: Callable[[str], None] = lambda key: None
        self.barred: Container[bytes] = ()  # enrolled keys that may not connect for a while
        self._files: dict[str, tuple[State, Enrolled | None]] = {}  # by file name; None: broken
        self._enrolled_by: dict[str, str] = {}  # names of the files that enrol the keys, by key
        self._trouble = ""  # the latest with the folder; it is logged once, not every second
        self._refused: dict[str, Enrolled] = {}  # by file name: contents that clashed with another file
        self._looked_at = 0.0
        self._is_told = True  # the latest call of `on_change` did not fail
        try:
            self._read(self._states())
        except OSError as error:
            raise ConfigError(
                f"--enrolled {folder}: cannot read the folder ({error.strerror}); make it, and put the public files "
                "of `goodspeed keygen draft NAME` into it"
            ) from None
        self.enrolled, clashes = self._resolve_clashes()
        if clashes:
            raise ConfigError(f"--enrolled {folder}: {'; '.join(clashes)}; remove one of them")

    def admits(self, key: str) -> bool:
        """True if a key may connect now: it is enrolled, and not barred.

        For an unknown key the folder is checked for changes first, at most every LOOK_S seconds. A key that stays
        unknown is reported to `on_refused`.
        """
        if key not in self.enrolled and time.monotonic() - self._looked_at >= LOOK_S:
            self.look()
        if key not in self.enrolled:
            self.on_refused(key)
        return key in self.enrolled and key.encode() not in self.barred

    def look(self) -> None:
        """Reads changed files, and calls `on_change` if the enrolment changed.

        An enrolled client wins over a newcomer with the same key or name. The newcomer stays refused until its file
        changes: revoking a key must not hand its name to another.
        """
        try:
            states, is_there = self._states(), True
            self._trouble = ""
        except (FileNotFoundError, NotADirectoryError) as error:
            what_to_do = "make the folder again, or mount it"
            self._tell_trouble("the folder is gone: nobody is enrolled", error, what_to_do)
            states, is_there = {}, False
        except OSError as error:
            what_to_do = "let this node's user read the folder, or mount it again"
            self._tell_trouble("cannot read the folder: all stays as it was", error, what_to_do)
            return
        if self._is_told and states == {name: state for name, (state, _) in self._files.items()}:
            return
        self._read(states)
        if is_there:  # a folder that disappears for a moment must not clear the refusals
            self._refused = {name: one for name, one in self._refused.items() if name in states}
        enrolled, clashes = self._resolve_clashes()
        for clash in clashes:
            what_to_do = "it stays refused until it is changed: give it a name and a key of its own, or remove it"
            logger.error("a file enrols nobody", extra={"folder": self.folder, "why": clash, "what_to_do": what_to_do})
        if enrolled != self.enrolled or not self._is_told:
            before, self.enrolled, self._is_told = self.enrolled, enrolled, False
            logger.info("the enrolment changed", extra={"num_enrolled": len(enrolled)})
            self.on_change()
            self._is_told = True
            self.say(changes(before, enrolled))

    def _tell_trouble(self, what: str, error: OSError, what_to_do: str) -> None:
        if what != self._trouble:
            logger.error(what, extra={"folder": self.folder, "why": error, "what_to_do": what_to_do})
        self._trouble = what

    def _states(self) -> dict[str, State]:
        """Returns the files' states by name, without hidden files, which editors and secret mounts create."""
        self._looked_at = time.monotonic()
        states: dict[str, State] = {}
        for path in self.folder.iterdir():
            if not path.name.startswith("."):
                state = file_state(path)
                with suppress(FileNotFoundError):  # it was removed after it was listed
                    path.lstat()
                    states[path.name] = state
        return states

    def _read(self, states: dict[str, State]) -> None:
        before, self._files = self._files, {}
        for name in sorted(states):
            known = before.get(name)
            self._files[name] = known if known and known[0] == states[name] else (states[name], self._read_one(name))
            is_new = known is not None and known[0] != states[name]
            if is_new and self._files[name][1] == self._refused.get(name, ...):
                what_to_do = "it says what it said when it was refused: change it, or leave it out for two seconds"
                logger.error("a file enrols nobody", extra={"file": name, "what_to_do": what_to_do})

    def _read_one(self, name: str) -> Enrolled | None:
        path = self.folder / name
        try:
            if not name.endswith(MARK):
                raise ConfigError(f"{path}: only public files ({MARK}) belong here; remove it")
            one = read_enrolled(path)
        except ConfigError as error:
            logger.error("a file enrols nobody", extra={"file": name, "why": error})
            return None
        if unknown := [tier for tier in one.tiers or () if tier not in self._tiers]:
            what = "a file names tiers that this node does not have; its users cannot ask for them"
            logger.warning(what, extra={"file": name, "tiers": ", ".join(unknown), "what_to_do": "see --slo-tier"})
        return one

    def _resolve_clashes(self) -> tuple[dict[str, Enrolled], list[str]]:
        """Returns the keys that the files enrol, and the clashes: files with the key or name of another file.

        Remembers the refused files, so that they stay refused until they change.
        """
        files = {
            name: one for name, (_, one) in self._files.items() if one is not None and self._refused.get(name) != one
        }

        def newness(name: str) -> tuple[bool, bool]:
            """Whether the file enrols anything new, and whether another file, or none, enrolled its key."""
            key = files[name].public_key
            return self.enrolled.get(key) != files[name], self._enrolled_by.get(key) != name

        newcomers_last = sorted(files, key=lambda name: (newness(name), name))
        keys: dict[str, str] = {}
        names: dict[str, str] = {}
        enrolled: dict[str, Enrolled] = {}
        clashes = []
        for name in newcomers_last:
            one = files[name]
            if other := keys.get(one.public_key):
                clashes.append(f"{name} has the same key as {other}")
            elif other := names.get(one.name):
                clashes.append(f"{name} has the same name {one.name!r} as {other}")
            else:
                keys[one.public_key] = names[one.name] = name
                enrolled[one.public_key] = one
                continue
            self._refused[name] = one
        self._enrolled_by = keys
        return enrolled, clashes


def changes(before: Mapping[str, Enrolled], after: Mapping[str, Enrolled]) -> Iterator[Sentence]:
    """Yields a status line for each draft node whose enrolment differs. Both by key."""
    old, new = ({one.name: one for one in enrolled.values()} for enrolled in (before, after))
    for name in sorted(old.keys() | new.keys()):
        if name not in new:
            yield Sentence("draft node %s is revoked", (name,))
        elif name not in old:
            yield Sentence("draft node %s is enrolled", (name,))
        elif old[name] != new[name]:
            yield Sentence("draft node %s is enrolled anew", (name,))
