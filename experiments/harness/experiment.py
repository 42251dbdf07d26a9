"""The frame of every experiment: its command line, its settings, its results on disk, its table beside the paper's.

An experiment is a function from its settings (a dataclass) to an `Outcome`, and another that draws its picture from
these settings and from `Results`, which is what is kept on disk: so a picture can be drawn again without running the
experiment (`--redraw`). Settings are in `experiments/configs/NAME.toml`, in two sections, `full` and `quick`; another
file may be given. Where settings compare policies (`Comparing`), the option `--policy` adds one to them;
where they have `recordings`, `--recordings` names the file of the texts that are replayed. Settings that the class
names in `OPTIONS` are options, too. Our goals are for the shipped settings: with others nothing is judged.
"""

import argparse
import json
import sys
import time
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from typing import Any, Self, TypeVar, cast, get_type_hints

import matplotlib
import msgspec
import numpy as np
from matplotlib.figure import Figure

from goodspeed.errors import ConfigError, PolicyError
from goodspeed.fair import policies
from goodspeed.serving.parser import CommandLine

HERE = Path(__file__).parents[1]
RESULTS, FIGURE = "results.json", "figure.png"
SECTIONS = ("full", "quick")
OTHER_SETTINGS = "with other settings than the shipped ones"
RECORDINGS = "--recordings", "replay the texts of this file, of models of your own (docs/SIMULATION.md)"
UNJUDGED = f"This ran {OTHER_SETTINGS}, for which our goals are: nothing is judged."
Config = TypeVar("Config")


class Comparing:
    """Settings, a dataclass, of an experiment that compares policies."""

    policies: tuple[str, ...]


@dataclass(frozen=True)
class Finding:
    """One figure of the table, beside the paper's where it has one."""

    what: str
    ours: float
    paper: float | None = None
    wanted: str = ""  # as the table says it: "at least 0.98"
    reached: bool | None = None  # None where nothing is wanted

    @classmethod
    def at_least(cls, what: str, ours: float, least: float, paper: float | None = None) -> Self:
        return cls(what, ours, paper, f"at least {least:g}", ours >= least)

    @classmethod
    def at_most(cls, what: str, ours: float, most: float, paper: float | None = None) -> Self:
        return cls(what, ours, paper, f"at most {most:g}", ours <= most)

    @property
    def ratio(self) -> float | None:
        return self.ours / self.paper if self.paper else None


@dataclass(kw_only=True)
class Results:
    """Tables that are kept on disk, from which the picture is drawn."""

    rows: list[dict[str, Any]]  # flat: one table
    curves: list[dict[str, Any]] = field(default_factory=list)  # what the picture shows beyond it: another table


@dataclass(kw_only=True)
class Outcome(Results):
    """The result of an experiment."""

    findings: list[Finding]
    facts: dict[str, Any] = field(default_factory=dict)  # for --json, beside everything else
    notes: list[str] = field(default_factory=list)  # below the table


def run(
    name: str,
    about: str,
    experiment: Callable[[Config], Outcome],
    draw: Callable[[Config, Results], Figure],
    config: type[Config],
    arguments: Sequence[str] | None = None,
) -> int:
    """The whole of `python -m experiments.NAME`."""
    options = parse(name, about, arguments, config)
    section = "quick" if options.quick else "full"
    out = options.out or HERE / "results" / ("quick" if options.quick else "") / name
    settings = load(options.config, section, config)
    given = {name: getattr(options, name) for name in own_options(config) if getattr(options, name) is not None}
    settings = replace(cast(Any, settings), **given)
    if (policy := getattr(options, "policy", None)) is not None:
        settings = _with_policy(settings, policy)
    is_shipped = settings == load(_shipped(name), section, config)

    def picture(results: Results) -> Figure:
        figure = draw(settings, results)
        if not is_shipped:  # its title is a sentence on the shipped settings
            figure.suptitle(f"{name}, {OTHER_SETTINGS}", fontsize=12)
        return figure

    if options.redraw:
        write_figure(picture(stored(out)), out)
        print(out / FIGURE)
        return 0
    say = partial(print, file=sys.stderr if options.json else sys.stdout, flush=True)
    started = time.perf_counter()
    try:
        outcome = experiment(settings)
    except (ConfigError, PolicyError) as error:
        raise SystemExit(f"{name}: {error}") from error
    seconds = time.perf_counter() - started
    if not is_shipped:
        outcome = unjudged(outcome)
    told = report(name, section, settings, outcome, seconds)
    save(outcome, told, out)
    write_figure(picture(outcome), out)
    say(table(outcome.findings))
    say("\n".join([*outcome.notes, f"{seconds:.0f} s; results and figure: {out}"]))
    if options.json:
        print(json.dumps(told))
    return 0


def unjudged(outcome: Outcome) -> Outcome:
    """Returns the outcome without goals: it is of settings for which there are none."""
    findings = [replace(finding, wanted="", reached=None) for finding in outcome.findings]
    return replace(outcome, findings=findings, notes=[*outcome.notes, UNJUDGED])


def _shipped(name: str) -> Path:
    return HERE / "configs" / f"{name}.toml"


def _with_policy(settings: Any, policy: str) -> Any:
    """The settings with one policy more. SystemExit where there is none of that name."""
    try:
        policies.load(policy)
        policies.create(policy)
    except ConfigError as error:
        raise SystemExit(str(error)) from error
    return replace(settings, policies=tuple(dict.fromkeys((*settings.policies, policy))))


def own_options(config: Any) -> dict[str, str]:
    """Settings that are options of an experiment: the file that it replays, and those that its class names."""
    option, what = RECORDINGS
    replays = {option.removeprefix("--"): what} if "recordings" in {each.name for each in fields(config)} else {}
    return replays | getattr(config, "OPTIONS", {})


def parse(name: str, about: str, arguments: Sequence[str] | None, config: type) -> argparse.Namespace:
    """config: whose fields and base class say which options the experiment has of its own."""
    parser = CommandLine(prog=f"python -m experiments.{name}", description=about)
    parser.add_argument("--quick", action="store_true", help="the settings of section `quick`: a minute at most")
    parser.add_argument("--json", action="store_true", help="one JSON object as the last line")
    parser.add_argument("--redraw", action="store_true", help="run nothing; draw the picture from the stored results")
    parser.add_argument("--config", type=Path, default=_shipped(name), help="settings, of clients of your own, say")
    parser.add_argument("--out", type=Path, help="folder of the results; default: experiments/results/NAME")
    for key, what in own_options(config).items():
        kind = get_type_hints(config)[key]
        parser.add_argument(f"--{key.replace('_', '-')}", type=kind, help=f"{what}; default: that of the settings")
    if issubclass(config, Comparing):
        what = "compare this policy, too: a name, or a class of your own (docs/POLICY.md)"
        parser.add_argument("--policy", metavar="NAME|MODULE:CLASS", help=what)
    options = parser.parse_args(arguments)
    if options.redraw and options.json:
        parser.error("--redraw runs nothing, so there is nothing for --json to tell; leave one of them out")
    return options


def load(path: Path, section: str, config: type[Config]) -> Config:
    """Loads one section of a settings file. SystemExit says what is wrong with it."""
    try:
        whole = tomllib.loads(path.read_text())
        settings = msgspec.convert(whole[section], config)
    except (OSError, tomllib.TOMLDecodeError, KeyError, msgspec.ValidationError) as error:
        raise SystemExit(f"{path}, section {section}: {type(error).__name__}: {error}") from None
    unknown = [*(key for key in whole if key not in SECTIONS), *_ignored(whole[section], msgspec.to_builtins(settings))]
    if unknown:
        raise SystemExit(f"{path}, section {section}: no such setting: {', '.join(unknown)}")
    return settings


def _ignored(given: Any, taken: Any, where: str = "") -> list[str]:
    """The names of members that were given and not taken, at any depth."""
    if isinstance(given, list):
        return [name for both in zip(given, taken, strict=True) for name in _ignored(*both, where)]
    if not isinstance(given, dict):
        return []
    found: list[str] = []
    for key, value in given.items():
        found += _ignored(value, taken[key], f"{where}{key}.") if key in taken else [where + key]
    return found


def save(outcome: Outcome, told: Mapping[str, Any], out: Path) -> None:
    """Writes what --json prints, and rows and curves by column with six digits, as one JSON object."""
    out.mkdir(parents=True, exist_ok=True)
    found = dict(told) | {name: _columns(getattr(outcome, name)) for name in ("rows", "curves")}
    (out / RESULTS).write_text(json.dumps(found) + "\n")


def stored(out: Path) -> Results:
    """Reads what `save` wrote. SystemExit where there is nothing."""
    if not (out / RESULTS).exists():
        raise SystemExit(f"{out / RESULTS} is not there: nothing can be drawn from it; run the experiment first")
    found = json.loads((out / RESULTS).read_text())
    return Results(rows=_rows(found["rows"]), curves=_rows(found["curves"]))


def _columns(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """The table by column; None where a row lacks a value."""
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: [_short(row.get(name)) for row in rows] for name in names}


def _rows(columns: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def _short(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_short(one) for one in value]
    value = value.item() if isinstance(value, np.generic) else value
    return float(f"{value:.6g}") if isinstance(value, float) else value


def write_figure(figure: Figure, out: Path) -> None:
    """Writes the figure without the version of what drew it, so that the same picture is the same file."""
    figure.savefig(out / FIGURE, dpi=120, bbox_inches="tight", metadata={"Software": None})


def report(name: str, section: str, settings: Any, outcome: Outcome, seconds: float) -> dict[str, Any]:
    findings = [asdict(finding) | {"ratio": finding.ratio} for finding in outcome.findings]
    facts = {"experiment": name, "settings": section, "config": msgspec.to_builtins(settings), "seconds": seconds}
    return facts | {"findings": findings} | outcome.facts


def table(findings: Sequence[Finding]) -> str:
    """Lines with a name, the paper's figure, ours, their ratio, and the wanted one."""
    width = max([len(finding.what) for finding in findings], default=4)
    lines = [f"{'':{width}} {'paper':>9} {'ours':>9} {'ratio':>7}  wanted"]
    for finding in findings:
        wanted = finding.wanted + {None: "", True: ": reached", False: ": MISSED"}[finding.reached]
        paper, ours, ratio = (_number(value) for value in (finding.paper, finding.ours, finding.ratio))
        lines.append(f"{finding.what:{width}} {paper:>9} {ours:>9} {ratio:>7}  {wanted}".rstrip())
    return "\n".join(lines)


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"


def new_figure(width: float = 9.0, height: float = 5.0) -> Figure:
    """A figure that needs no screen, and that no global state of matplotlib knows of."""
    matplotlib.use("Agg")
    return Figure(figsize=(width, height), layout="constrained")
