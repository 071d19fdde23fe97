"""A tab: its declaration, how it answers, and a request to it."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar, get_type_hints

from planner import plugins
from planner.inputs import catalog
from planner.inputs.readers import read_toml
from planner.specs.base import PlanError
from planner.specs.documents import by_answer
from planner.specs.options import LAYOUT, Given, Options, Record, Row, command_line, flag, rows
from planner.specs.options.named import WORK
from planner.specs.options.own import Output
from planner.specs.options.verbs import ALIKE
from planner.views.view import View
from web.state import MARK, PAGE, START, TEXTS, Pairs, State, filled, of_pairs, searched, typed

R = TypeVar("R", bound=Record)

_SCENARIO = ("model", "gpu", "gpus")  # without which no plan is made
_PICKED = (*LAYOUT, "stack", "global_batch")  # what a pick fills in


@dataclass(frozen=True)
class Page:
    """An entry of the navigation. lens: under which it stands; after: path of the one that it
    follows; empty: the last; carried: whether a link to it takes the scenario along; within: path
    of the page that shows it as a step, where that page is installed."""

    path: str
    name: str
    lens: str
    after: str = field(default="", kw_only=True)
    carried: bool = field(default=True, kw_only=True)
    within: str = field(default="", kw_only=True)


@dataclass(frozen=True)
class TabRequest:
    """A request to a tab: its own options by record, and the options of a request.

    state: the request with its pasted texts; of a verb without a model, one stands in. given: what
    was given, several values as a list. pairs: of the address. words: records that are not options
    of the command. files: that were posted with it, by name. progress: takes how far the verb is.
    """

    verb: str
    own: Mapping[type[Record], Record]
    state: State
    given: Given
    pairs: Pairs
    words: tuple[type[Record], ...]
    files: Mapping[str, bytes] = field(default_factory=dict)
    progress: Callable[[int, int], None] | None = None

    def of(self, record: type[R]) -> R:
        """The options of one record."""
        options = self.own[record]
        assert isinstance(options, record)
        return options

    @cached_property
    def command(self) -> str:
        """The command that asks the same."""
        lists = {name: value for name, value in self.given.items() if isinstance(value, list)}
        options = self.state.options.changed(**dict.fromkeys(lists), spelled=())
        words = _words(options, self.verb)
        if "model" not in self.given:
            words = words[:1] + words[3:]
        words += [
            word for name, many in lists.items() for value in many for word in (flag(name), value)
        ]
        words += [
            word
            for kind, options in self.own.items()
            if kind not in self.words
            for word in _words(options, self.verb)[1:]
        ]
        return shlex.join(["dpplan", *words])


def _words(options: Record, verb: str) -> list[str]:
    """The command of these options, its verb first."""
    return [verb, *shlex.split(command_line(options, verb).removeprefix(f"dpplan {verb}"))]


@dataclass(frozen=True)
class Step:
    """A step of a page of several. anchor: its address on the page; command: asks the same."""

    anchor: str
    name: str
    view: View
    command: str = ""


@dataclass(frozen=True)
class Within:
    """A step that is the answer of another entry of the navigation to these pairs."""

    path: str
    pairs: Pairs


@dataclass(frozen=True)
class Answers:
    """How a tab answers. find: asks the verb; view: what its page shows of that; command: asks the
    same; words: records of options that only the page has; choices: (value, label) of fields that
    are lists here; plan: what files say with what was typed; out: its document; sooner: answer to a
    part of a request that takes long, None where there is none; steps: of a page of several, below
    its view.
    """

    find: Callable[[TabRequest], Any]
    view: Callable[[Any, TabRequest], View]
    command: Callable[[Any, TabRequest], str] = lambda document, request: request.command
    words: tuple[type[Record], ...] = ()
    choices: Mapping[str, Callable[[], list[tuple[str, str]]]] = field(default_factory=dict)
    plan: Callable[[Any], State | None] = lambda document: None
    out: Callable[[Any], Any] = lambda document: document
    sooner: Callable[[TabRequest], Any] = lambda request: None
    steps: Callable[[Any, TabRequest], Iterable[Step | Within]] = lambda document, request: ()


@dataclass(frozen=True)
class Tab(Page):
    """A page of one verb: a form, and the view of what the verb answers. A row of tabs.toml, which
    says what each key means.

    answers: how it answers; model: whether one is needed, None: where one is given.
    """

    answers: Answers
    title: str = ""
    lead: str = ""
    ask: str = ""
    verb: str = ""
    api: str = ""
    shown: tuple[str, ...] = ()
    folded: tuple[str, ...] = ()
    start: Pairs = field(default_factory=list)
    usual: Pairs = field(default_factory=list)
    question: str = ""
    alone: frozenset[str] = frozenset()
    model: bool | None = True
    files: str = ""
    of_layout: bool = False

    @property
    def documents(self) -> tuple[str, ...]:
        """Names of its answers in planner.specs.documents; none of a tab of files, which
        is not answered over HTTP."""
        return () if self.files else tuple(n for n in by_answer() if n.split()[0] == self.verb)

    @cached_property
    def records(self) -> tuple[type[Record], ...]:
        """Records of options that only the verb has, as its command takes them."""
        if not self.documents:
            return ()
        module = plugins.module_of("verbs", self.verb)
        if module is None:
            return ()
        kinds = get_type_hints(module.command).values()
        return tuple(kind for kind in kinds if issubclass(kind, Record) and kind is not Output)

    @property
    def words(self) -> tuple[type[Record], ...]:
        """Records of options that only the page has."""
        return self.answers.words

    @property
    def address(self) -> str:
        """The last word of its address under /api."""
        return self.api or self.verb

    @property
    def own_rows(self) -> dict[str, Row]:
        """The options of its own that an address may have: those that name no file of the server
        and do not say who works on it."""
        return {
            name: row
            for record in (*self.records, *self.words)
            for name, row in rows(record).items()
            if not row.says.file and row.group is not WORK
        }

    def with_defaults(self, pairs: Pairs) -> Pairs:
        """The request of the page for these pairs: defaults fill what it leaves out, and
        are marked as such."""
        names = {name for name, text in pairs if text and not name.startswith(MARK)}
        if not names:
            return filled(pairs, self.start)
        scenario = [pair for pair in self.start if pair[0] in {*_SCENARIO} - self.own_rows.keys()]
        if self.alone and not names <= {*self.own_rows, *self.alone}:
            scenario = PAGE
        return filled(pairs, [*self.usual, *scenario])

    def split(self, pairs: Pairs) -> tuple[Pairs, Pairs]:
        """Pairs that its verb takes, and pairs that only the address keeps."""
        left = self.left(pairs) | self.freed(pairs)
        kept = [pair for pair in pairs if pair[0].removeprefix(MARK) not in left]
        return kept, [pair for pair in pairs if pair[0] in left and pair[1]]

    def left(self, pairs: Pairs) -> set[str]:
        """Options of a request that its verb does not take."""
        question = dict(pairs).get(self.question) or (
            str(self.own_rows[self.question].default) if self.question else ""
        )
        verb = self.verb or "estimate"
        verb = f"{ALIKE.get(verb, verb)} {question}".strip()
        left = {
            name
            for name, row in rows(Options).items()
            if name not in self.own_rows and verb not in row.verbs
        }
        return left | ({"config"} if "model" in left else set())

    def freed(self, pairs: Pairs) -> set[str]:
        """Options of a pick that the search had filled in, which are searched again here."""
        return set() if self.of_layout else searched(pairs) & {*_PICKED}

    def row(self, name: str) -> Row:
        """An option of the form."""
        return self.own_rows.get(name) or rows(Options)[name]


@contextlib.contextmanager
def requested(
    tab: Tab, pairs: Pairs, files: Mapping[str, bytes] = MappingProxyType({})
) -> Iterator[TabRequest]:
    """The request of an address to a tab, while their pasted texts and these files are the
    only ones that can be read. Raises PlanError."""
    table = tab.own_rows
    typed_own: dict[str, Any] = {}
    lists: dict[str, list[str]] = {}
    rest: Pairs = []
    for name, text in pairs:
        if text == "" or (name.startswith(MARK) and name.removeprefix(MARK) in table):
            continue
        if name in table:
            _take(typed_own, table[name], name, text)
        elif name not in TEXTS and name in rows(Options) and several(tab, rows(Options)[name]):
            lists.setdefault(name, []).append(text)
        else:
            rest.append((name, text))
    options = {record: _read(record, typed_own) for record in (*tab.records, *tab.words)}
    state, given = _request(tab, rest, lists)
    with catalog.only_given({**files, **state.files}):
        yield TabRequest(tab.verb, options, state, given, list(pairs), tab.words, files)


def several(tab: Tab, row: Row) -> bool:
    """Whether the verb of a tab takes an option of a request several times."""
    return any(verb.split()[0] == tab.verb for verb in row.says.several)


def _take(taken: dict[str, Any], row: Row, name: str, text: str) -> None:
    if row.is_several:
        parts = [part.strip() for part in text.split(";") if part.strip()]
        taken[name] = (*taken.get(name, ()), *parts)
        return
    if name in taken:
        raise PlanError(row.flag, text, "is given twice; keep one")
    taken[name] = typed(row, text)


def _read(record: type[R], given: Mapping[str, Any]) -> R:
    table = rows(record)
    for name, row in table.items():
        if row.is_needed and name not in given:
            raise PlanError(row.flag, None, "is needed")
    return record(**{name: value for name, value in given.items() if name in table})


def _request(tab: Tab, rest: Pairs, lists: Mapping[str, list[str]]) -> tuple[State, Given]:
    """The request of the other pairs, and its options by name."""
    names = {name for name, _ in rest}
    of_model = names & {"model", "config"}
    if of_model and tab.model is False:
        raise PlanError("--model", None, f"is not an option of `dpplan {tab.verb}`; leave it out")
    if tab.model and not of_model:
        raise PlanError("--model", None, "is needed: choose one")
    stand_in = [] if of_model else [("model", str(START["model"]))]
    for name, many in lists.items():
        for entry in many:  # each is held to what a page may ask
            of_pairs([*stand_in, *rest, (name, entry)])
    state = of_pairs([*stand_in, *rest])
    given = {n: v for n, v in state.options.given().items() if n != "model" or of_model}
    if tab.files:  # a value that is the option's default wins over what the files say, too
        stated = {n for n, text in rest if text and n in rows(Options)}
        given = {n: getattr(state.options, n) for n in stated if state.is_typed(n)}
    origins = state.options.origins
    return state, Given({**given, **{name: list(many) for name, many in lists.items()}}, origins)


_MODEL = {"never": False, "open": None}


def pages_of(file: str, answers: Mapping[str, Answers]) -> tuple[Page, ...]:
    """The rows of the tabs.toml beside a file, as they answer by path; one that does not is a page
    with a route and a template of its own."""
    table = read_toml(Path(file).with_name("tabs.toml").read_text(encoding="utf-8"))
    return tuple(_page(answers, **row) for row in table["tab"])


def _page(answers: Mapping[str, Answers], path: str, name: str, lens: str, **row: Any) -> Page:
    after, within = row.pop("after", ""), row.pop("within", "")
    if path not in answers:
        return Page(path, name, lens, after=after, within=within, **row)
    start = [*(PAGE if row.pop("plan", False) else []), *map(tuple, row.pop("start", []))]
    return Tab(
        path,
        name,
        lens,
        answers[path],
        after=after,
        within=within,
        start=start,
        usual=[*map(tuple, row.pop("usual", []))],
        shown=tuple(row.pop("shown")),
        folded=tuple(row.pop("folded", ())),
        alone=frozenset(row.pop("alone", ())),
        of_layout=row.pop("layout", False),
        model=_MODEL.get(row.pop("model", ""), True),
        **row,
    )
