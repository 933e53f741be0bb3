"""Oracle of `spec/claims.md`: what may be published of facts, judged figure by figure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, get_args

import numpy as np

from medusa_oracles.judge import Check, oracle_beside
from medusa_oracles.output_law import EXACT_MODES
from medusa_spec.claims import CONTRACT_WORDS, Facts, Figure, Law, lineage, scope
from medusa_spec.coordinate import SamplingMode
from medusa_spec.documents import schema
from medusa_spec.findings import Finding
from medusa_spec.trace import Trace

EVIDENCE: Mapping[str, str] = {
    "computed": "derived",
    "made-up": "synthetic",
    "run": "measured",
    "said": "source-reported",
}
"""What a figure is, by the kind of its origin."""

CARRIED: Mapping[str, tuple[str, ...]] = {
    "derived": ("formula", "inputs"),
    "synthetic": ("purpose",),
    "measured": ("machine", "command", "sample"),
    "source-reported": (),
}
"""What of its origin a figure of each evidence carries; sources have a clause of their own."""


class Typing(NamedTuple):
    """What a figure is, what it rests on in the end, who says so, and whether it is of this run."""

    evidence: str
    rests_on: frozenset[str]
    sources: frozenset[str]
    local: bool


def derive_typing(facts: Facts) -> dict[str, Typing]:
    """Clauses E1 and E3 to E5: every figure by its name.

    Which figures another comes from in the end is the closure of who is computed of whom.
    """
    rows = {figure.name: row for row, figure in enumerate(facts.figures)}
    reached = np.eye(len(rows), dtype=np.int64)
    for figure in facts.figures:
        for name in figure.origin.get("inputs", ()):
            reached[rows[figure.name], rows[name]] = 1
    # Each squaring doubles the longest way that is followed.
    for _ in range(len(rows).bit_length()):
        reached = (reached @ reached > 0).astype(np.int64)
    found = {}
    for figure in facts.figures:
        at = [facts.figures[row] for row in np.flatnonzero(reached[rows[figure.name]])]
        ends = [other for other in at if other.origin["kind"] != "computed"]
        bases = frozenset(EVIDENCE[other.origin["kind"]] for other in ends)
        sources = frozenset(o.origin["source"] for o in ends if o.origin["kind"] == "said")
        evidence = EVIDENCE[figure.origin["kind"]]
        found[figure.name] = Typing(evidence, bases, sources, bases == {"measured"})
    return found


INEXACT = frozenset(get_args(SamplingMode)) - frozenset(EXACT_MODES)
"""Modes of X7 that leave their law for some tables; so does whatever else is typical."""


def derive_claim(law: Law) -> str:
    """Clause E6: the most that a mode may be called, by the words of P14, P15 and X7."""
    if "typical" in law.mode.split("-") or law.mode in INEXACT:
        return "heuristic"
    if law.distance is None:
        return "unproven"
    if law.distance > 0:
        return "heuristic"
    return "greedy-exact" if law.mode == "greedy" else "target-law"


def claims_oracle(
    code: str, *needs: str, proves: Callable[[Facts], bool] = lambda _: True
) -> Callable[[Check], Check]:
    """An oracle of what is published; it applies where the coordinate has facts.

    Of facts without a figure that a rule speaks of, silence proves nothing.
    """
    return oracle_beside("claims", code, *needs, proves=lambda trace: proves(facts_of(trace)))


def facts_of(trace: Trace) -> Facts:
    """The facts; every oracle of claims applies only where there are some."""
    facts = trace.coordinate.claims
    assert facts is not None
    return facts


def has_figures(facts: Facts) -> bool:
    """Whether there is any figure."""
    return bool(facts.figures)


def rests_on(basis: str) -> Callable[[Facts], bool]:
    """Whether any figure of given facts rests on this."""
    return lambda facts: any(basis in found.rests_on for found in derive_typing(facts).values())


def form(part: str) -> frozenset[str]:
    """The keys that an entry of policies, lineage or scope has in `claims.schema.json`."""
    return frozenset(schema("claims")["properties"][part]["items"]["properties"])


def form_of_figures(evidence: str) -> frozenset[str]:
    """The keys of a figure of this evidence; every evidence has a form of its own."""
    forms = [f["properties"] for f in schema("claims")["properties"]["figures"]["items"]["oneOf"]]
    return frozenset(*(keys for keys in forms if keys["evidence"]["const"] == evidence))


def strangers(
    code: str, part: str, key: str, entries: Iterable[Mapping[str, Any]]
) -> Iterator[Finding]:
    """A finding for every key that the form of a part does not have: it says what nobody judges."""
    known = form(part)
    for entry in entries:
        for name in sorted(map(str, entry.keys() - known)):
            message = (
                f"{str(entry.get(key))[:80]} carries {name[:80]}, which its form does not have"
            )
            yield Finding(code, message, {}, None, entry.get(name))


class Published(NamedTuple):
    """A figure of the facts, the first entry that is published of it, and what it must be."""

    row: int
    figure: Figure
    entry: Mapping[str, Any]
    typing: Typing


def published(trace: Trace) -> Iterator[Published]:
    """Every figure that is there; one that is missing is E2's."""
    facts = facts_of(trace)
    entries: dict[Any, Mapping[str, Any]] = {}
    for entry in trace["claims.figures"]:
        entries.setdefault(entry.get("name"), entry)
    typings = derive_typing(facts)
    for row, figure in enumerate(facts.figures):
        if figure.name in entries:
            yield Published(row, figure, entries[figure.name], typings[figure.name])


def taken_for_own(seen: Published, basis: str) -> Iterator[str]:
    """How a figure that rests on what was not run here is passed off as one that was."""
    if basis in seen.typing.rests_on:
        if seen.entry.get("evidence") == "measured":
            yield "called measured"
        if seen.entry.get("local") is True:
            yield "called local"


_FOREIGN = ("synthetic", "source-reported")


@claims_oracle("CLAIMS.EVIDENCE", "claims.figures", proves=has_figures)
def evidence(trace: Trace) -> Iterator[Finding]:
    """Clause E1. That a foreign figure is called measured is E3's and E4's."""
    code = "CLAIMS.EVIDENCE"
    for seen in published(trace):
        where, said = {"figure": seen.row}, seen.entry.get("evidence")
        if any(how == "called measured" for b in _FOREIGN for how in taken_for_own(seen, b)):
            continue
        if said != seen.typing.evidence:
            message = f"{seen.figure.name} is not called what it is"
            yield Finding(code, message, where, seen.typing.evidence, said)
            continue
        for key in CARRIED[said]:
            expected, observed = seen.figure.origin[key], seen.entry.get(key)
            if not alike(expected, observed):
                message = f"{seen.figure.name} is {said}, and carries another {key}, or none"
                yield Finding(code, message, where, expected, observed)
        for key in sorted(map(str, seen.entry.keys() - form_of_figures(said))):
            message = f"{seen.figure.name} is {said}, and carries {key[:80]}, which is not its own"
            yield Finding(code, message, where, None, seen.entry.get(key))


def alike(expected: Any, observed: Any) -> bool:
    """Whether two plain values are the same; a list may come as a tuple."""
    if isinstance(expected, Sequence) and not isinstance(expected, str):
        return isinstance(observed, list | tuple) and [*expected] == [*observed]
    return bool(expected == observed)


@claims_oracle("CLAIMS.FIGURES_KEPT", "claims.figures")
def figures_kept(trace: Trace) -> Iterator[Finding]:
    """Clause E2."""
    code, facts = "CLAIMS.FIGURES_KEPT", facts_of(trace)
    listed = Counter(entry.get("name") for entry in trace["claims.figures"])
    for row, figure in enumerate(facts.figures):
        if listed[figure.name] != 1:
            message = f"{figure.name} is not published once"
            yield Finding(code, message, {"figure": row}, 1, listed[figure.name])
    for name in listed.keys() - {figure.name for figure in facts.figures}:
        yield Finding(code, f"{str(name)[:80]} is published, and is no figure of the facts")
    for seen in published(trace):
        for key in ("value", "unit", "quantity"):
            expected, observed = getattr(seen.figure, key), seen.entry.get(key)
            if observed != expected:
                message = f"{seen.figure.name} has another {key}"
                yield Finding(code, message, {"figure": seen.row}, expected, observed)


@claims_oracle("CLAIMS.SYNTHETIC_IS_NOT_MEASURED", "claims.figures", proves=rests_on("synthetic"))
def synthetic_is_not_measured(trace: Trace) -> Iterator[Finding]:
    """Clause E3."""
    for seen in published(trace):
        for how in taken_for_own(seen, "synthetic"):
            message = f"{seen.figure.name} rests on what was made up, and is {how}"
            where = {"figure": seen.row}
            yield Finding("CLAIMS.SYNTHETIC_IS_NOT_MEASURED", message, where)


@claims_oracle("CLAIMS.NO_BORROWED_SPEEDUP", "claims.figures", proves=rests_on("source-reported"))
def no_borrowed_speedup(trace: Trace) -> Iterator[Finding]:
    """Clause E4."""
    code = "CLAIMS.NO_BORROWED_SPEEDUP"
    for seen in published(trace):
        where, name = {"figure": seen.row}, seen.figure.name
        for how in taken_for_own(seen, "source-reported"):
            yield Finding(code, f"{name} rests on what a source reports, and is {how}", where)
        named = {*(seen.entry.get("sources") or ())}
        if named != seen.typing.sources:
            message = f"{name} does not name the sources that it rests on"
            yield Finding(code, message, where, sorted(seen.typing.sources), sorted(named))


@claims_oracle("CLAIMS.BASIS", "claims.figures", proves=has_figures)
def basis(trace: Trace) -> Iterator[Finding]:
    """Clause E5: what follows from what is said of the figure and its inputs, or the truth.

    So a figure that is called what it is not is one breach, of another clause, and not two; and
    that a foreign figure is called local is E3's and E4's.
    """
    code, every = "CLAIMS.BASIS", list(published(trace))
    said = {seen.figure.name: frozenset(seen.entry.get("rests_on") or ()) for seen in every}
    for seen in every:
        where, typing, name = {"figure": seen.row}, seen.typing, seen.figure.name
        own = [frozenset({seen.entry.get("evidence")})]
        if seen.figure.origin["kind"] == "computed":
            own = [said.get(other, frozenset()) for other in seen.figure.origin["inputs"]]
        if said[name] not in (typing.rests_on, frozenset().union(*own)):
            message = f"{name} does not say what it rests on"
            yield Finding(code, message, where, sorted(typing.rests_on), sorted(said[name]))
        local, follows = seen.entry.get("local"), said[name] == {"measured"}
        foreign = local is True and bool({*_FOREIGN} & typing.rests_on)
        if local is not typing.local and local is not follows and not foreign:
            message = f"{name} does not say whether it is of this run"
            yield Finding(code, message, where, typing.local, local)


@claims_oracle("CLAIMS.POLICY", "claims.policies", proves=lambda facts: bool(facts.policies))
def policy(trace: Trace) -> Iterator[Finding]:
    """Clause E6."""
    said = [(entry.get("mode"), entry.get("claim")) for entry in trace["claims.policies"]]
    owed = [(law.mode, derive_claim(law)) for law in facts_of(trace).policies]
    for mode, expected in owed:
        found = [claim for name, claim in said if name == mode]
        # Who calls a mode a heuristic claims no law of it, so that is never too much.
        if found not in ([expected], ["heuristic"]):
            message = f"the policy {mode} is not called what it is"
            observed = found[0] if len(found) == 1 else found
            yield Finding("CLAIMS.POLICY", message, {}, expected, observed)
    known = [mode for mode, _ in owed]
    for name in [name for name, _ in said if name not in known]:
        message = f"the policy {str(name)[:80]} is published, and nothing is known of it"
        yield Finding("CLAIMS.POLICY", message)
    yield from strangers("CLAIMS.POLICY", "policies", "mode", trace["claims.policies"])


@claims_oracle("CLAIMS.BATCH_ONE", "claims.batch")
def batch_one(trace: Trace) -> Iterator[Finding]:
    """Clause E7."""
    batch = trace["claims.batch"]
    if batch.tolist() != 1:
        message = "more is claimed than one sequence a round"
        yield Finding("CLAIMS.BATCH_ONE", message, {}, 1, batch.tolist())


@claims_oracle("CLAIMS.SCOPE", "claims.scope")
def scope_is_named(trace: Trace) -> Iterator[Finding]:
    """Clause E8; an engine may leave more to others, if it names them."""
    code, said = "CLAIMS.SCOPE", trace["claims.scope"]
    topics = {entry["topic"]: entry["owner"] for entry in scope()}
    for topic, owner in topics.items():
        owners = [entry.get("owner") for entry in said if entry.get("topic") == topic]
        if owners != [owner]:
            message = f"{topic} is not left to its owner"
            yield Finding(code, message, {}, owner, owners[0] if len(owners) == 1 else owners)
    for entry in said:
        topic = str(entry.get("topic"))[:80]
        if entry.get("topic") not in topics and not entry.get("owner"):
            yield Finding(code, f"{topic} is left to nobody")
        if entry.get("covered") is not False:
            message = f"{topic} is left to others, and is not said to be uncovered"
            yield Finding(code, message, {}, False, entry.get("covered"))
    yield from strangers(code, "scope", "topic", said)


@claims_oracle("CLAIMS.LINEAGE", "claims.lineage")
def lineage_by_contract(trace: Trace) -> Iterator[Finding]:
    """Clause E9."""
    code, said = "CLAIMS.LINEAGE", trace["claims.lineage"]
    methods = [method["method"] for method in lineage()["methods"]]
    for method in lineage()["methods"]:
        entries = [entry for entry in said if entry.get("method") == method["method"]]
        if len(entries) != 1:
            message = f"{method['method']} is not told once"
            yield Finding(code, message, {}, 1, len(entries))
            continue
        for word in CONTRACT_WORDS:
            expected, observed = method[word], entries[0].get(word)
            if observed != expected:
                message = f"{method['method']} is told with another {word}"
                yield Finding(code, message, {}, expected, observed)
    for name in [entry.get("method") for entry in said if entry.get("method") not in methods]:
        yield Finding(code, f"{str(name)[:80]} is told, and is no method of the lineage")
    yield from strangers(code, "lineage", "method", said)
