"""Oracle of `spec/commit.md`: one winning path's tokens, rows and frontier, published at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from medusa_oracles.judge import equal, oracle, same
from medusa_oracles.tree import expected_tree
from medusa_oracles.verification import prefix_length
from medusa_spec.arrays import Array, IntArray
from medusa_spec.findings import Finding
from medusa_spec.trace import Trace


def derive_published_rows(
    retrieval: IntArray, packed: IntArray, path: int, accepted: int, end_of_sequence: int | None
) -> IntArray:
    """Clauses M1 and M12: packed rows `[G]` of the winner, cut behind an end of sequence."""
    rows = retrieval[path, : accepted + 1]
    if end_of_sequence is not None:
        ends = np.flatnonzero(packed[rows] == end_of_sequence)
        if len(ends):
            rows = rows[: ends[0] + 1]
    return rows


@dataclass(frozen=True, slots=True)
class Publication:
    """What a selection demands of its commit: tokens and rows `[G]`, and what stands behind them.

    `length` is the new length of the cache, `terminal` the packed row of the last token.
    """

    tokens: IntArray
    source: IntArray
    destination: IntArray
    length: int
    terminal: int


def derive_commit(trace: Trace) -> Publication:
    """The commit that this trace's own selection demands (clauses M1 to M3, M6 to M8)."""
    packed, retrieval = trace["proposal.packed"], expected_tree(trace).retrieval
    rows = derive_published_rows(
        retrieval,
        packed,
        int(trace["selection.path"]),
        int(trace["selection.accepted"]),
        trace.coordinate.end_of_sequence,
    )
    committed = prefix_length(trace)
    return Publication(
        packed[rows],
        committed + rows,
        committed + np.arange(len(rows)),
        committed + len(rows),
        int(rows[-1]),
    )


def _lawful(trace: Trace) -> bool:
    """Whether the selection names a path and a length that the tree has, and every row is there.

    Other contracts report a selection or a row count that is not.
    """
    retrieval, nodes = expected_tree(trace).retrieval, trace.coordinate.nodes
    rows = [len(trace["proposal.packed"])]
    if trace.has("verification.logits"):
        rows.append(len(trace["verification.logits"]))
    if trace.has("verification.head_logits"):
        rows.append(trace["verification.head_logits"].shape[1])
    if any(there != nodes for there in rows):
        return False
    path, accepted = int(trace["selection.path"]), int(trace["selection.accepted"])
    if not 0 <= path < len(retrieval):
        return False
    return 0 <= accepted < int((retrieval[path] >= 0).sum())


_CHOICE = (
    "selection.path",
    "selection.accepted",
    "proposal.packed",
    "round.tokens",
)
_CACHE = ("cache.before", "cache.after", "commit.source", "commit.destination")


@oracle("COMMIT.PUBLISHED_COUNT", *_CHOICE, "commit.tokens", applies=_lawful)
def published_count(trace: Trace) -> Iterator[Finding]:
    """Clause M1."""
    expected, observed = len(derive_commit(trace).tokens), len(trace["commit.tokens"])
    if expected != observed:
        message = "the round does not publish the root and the accepted edges"
        yield Finding("COMMIT.PUBLISHED_COUNT", message, {}, expected, observed)


@oracle("COMMIT.SOURCE_ROWS", *_CHOICE, "commit.source", applies=_lawful)
def source_rows(trace: Trace) -> Iterator[Finding]:
    """Clause M2."""
    message = "a source row is not P + retrieval of the winning path"
    expected = derive_commit(trace).source
    yield from equal("COMMIT.SOURCE_ROWS", message, expected, trace["commit.source"], ("place",))


@oracle("COMMIT.DESTINATION_ROWS", *_CHOICE, "commit.destination", applies=_lawful)
def destination_rows(trace: Trace) -> Iterator[Finding]:
    """Clause M3."""
    message = "a destination row is not the next row behind the prefix"
    expected = derive_commit(trace).destination
    yield from equal(
        "COMMIT.DESTINATION_ROWS", message, expected, trace["commit.destination"], ("place",)
    )


@oracle("COMMIT.ALL_LAYERS", *_CACHE, *_CHOICE, applies=_lawful)
def all_layers(trace: Trace) -> Iterator[Finding]:
    """Clause M4: per layer, for keys and for values, the winner's rows stand compact."""
    code, plan = "COMMIT.ALL_LAYERS", derive_commit(trace)
    before, after = trace["cache.before"], trace["cache.after"]
    if before.shape != after.shape:
        message = "the cache has another shape than before"
        yield Finding(code, message, {}, list(before.shape), list(after.shape))
        return
    message = "a committed row is not the winner's staged row"
    axes = ("layer", "key_or_value", "kv_head", "place", "channel")
    expected, observed = before[:, :, :, plan.source], after[:, :, :, plan.destination]
    yield from equal(code, message, expected, observed, axes)


@oracle("COMMIT.SNAPSHOT", *_CACHE)
def snapshot(trace: Trace) -> Iterator[Finding]:
    """Clause M5, over the observed plan: no destination holds another source's row."""
    source, destination = trace["commit.source"], trace["commit.destination"]
    before, after = trace["cache.before"], trace["cache.after"]
    rows = before.shape[3]
    if before.shape != after.shape or any(r not in range(rows) for r in (*source, *destination)):
        return
    for place, (here, there) in enumerate(zip(source, destination, strict=False)):
        landed = after[:, :, :, there]
        if same(before[:, :, :, here], landed):
            continue
        for other in source:
            if other != here and same(before[:, :, :, other], landed):
                message = "a source row was overwritten before it was read"
                where = {"place": place}
                yield Finding("COMMIT.SNAPSHOT", message, where, int(here), int(other))
                return


@oracle(
    "COMMIT.ONE_PATH",
    *_CHOICE,
    "commit.tokens",
    applies=_lawful,
)
def one_path(trace: Trace) -> Iterator[Finding]:
    """Clause M6: names the part of the publication that agrees with a path that did not win."""
    tree, winner = expected_tree(trace), int(trace["selection.path"])
    edges = len(derive_commit(trace).tokens)
    packed, committed = trace["proposal.packed"], prefix_length(trace)
    parts: list[tuple[str, str, Callable[[IntArray], Array]]] = [
        ("tokens", "commit.tokens", lambda rows: packed[rows])
    ]
    if trace.has("commit.source"):
        parts.append(("K/V rows", "commit.source", lambda rows: committed + rows))
    if trace.has("verification.logits", "commit.frontier.target"):
        logits = trace["verification.logits"]
        parts.append(("target frontier", "commit.frontier.target", lambda rows: logits[rows[-1]]))
    if trace.has("verification.head_logits", "commit.frontier.heads"):
        heads = trace["verification.head_logits"]
        parts.append(("head frontier", "commit.frontier.heads", lambda rows: heads[:, rows[-1]]))
    for part, name, of_rows in parts:
        observed = trace[name]
        if same(of_rows(tree.retrieval[winner, :edges]), observed):
            continue
        for path, entries in enumerate(tree.retrieval):
            rows = entries[:edges]
            if path != winner and rows[-1] >= 0 and same(of_rows(rows), observed):
                message = f"the {part} are those of a path that did not win"
                yield Finding("COMMIT.ONE_PATH", message, {"path": path}, winner, path)
                return


@oracle(
    "COMMIT.FRONTIER",
    *_CHOICE,
    "verification.logits",
    "commit.frontier.target",
    applies=_lawful,
)
def frontier(trace: Trace) -> Iterator[Finding]:
    """Clause M7: the target's logits, and the heads' where both sides of them were observed."""
    code, terminal = "COMMIT.FRONTIER", derive_commit(trace).terminal
    message = "the next frontier is not the terminal published row's"
    expected, observed = trace["verification.logits"][terminal], trace["commit.frontier.target"]
    found = list(equal(code, f"{message} target logits", expected, observed, ("token",)))
    if not found and trace.has("verification.head_logits", "commit.frontier.heads"):
        heads, observed = trace["verification.head_logits"], trace["commit.frontier.heads"]
        axes = ("head", "token")
        found += equal(code, f"{message} head logits", heads[:, terminal], observed, axes)
    yield from found


@oracle("COMMIT.LENGTH", "commit.length", "commit.tokens", "round.tokens")
def length(trace: Trace) -> Iterator[Finding]:
    """Clause M8: the reported length, and the cache's own, grow by what was published."""
    expected = prefix_length(trace) + len(trace["commit.tokens"])
    for name in ("commit.length", "cache.length"):
        observed = int(trace[name]) if trace.has(name) else expected
        if expected != observed:
            message = f"{name} does not grow by the number of published tokens"
            yield Finding("COMMIT.LENGTH", message, {}, expected, observed)
            return


@oracle("COMMIT.PREFIX_UNTOUCHED", "cache.before", "cache.after", "round.tokens")
def prefix_untouched(trace: Trace) -> Iterator[Finding]:
    """Clause M9."""
    committed = prefix_length(trace)
    expected = trace["cache.before"][:, :, :, :committed]
    observed = trace["cache.after"][:, :, :, :committed]
    message = "a committed prefix row changed"
    axes = ("layer", "key_or_value", "kv_head", "cache_row", "channel")
    yield from equal("COMMIT.PREFIX_UNTOUCHED", message, expected, observed, axes)


@oracle(
    "COMMIT.VALIDATED_FIRST",
    "refusal.asked",
    "refusal.refused",
)
def validated_first(trace: Trace) -> Iterator[Finding]:
    """Clause M10: what cannot be done was asked for; the cache, where it was seen, is as before."""
    code, asked = "COMMIT.VALIDATED_FIRST", trace["refusal.asked"]
    if trace["refusal.refused"] is None:
        yield Finding(code, f"{asked} was not refused", {}, "a refusal", "success")
    if trace.has("refusal.length_before", "refusal.length_after"):
        lengths = int(trace["refusal.length_before"]), int(trace["refusal.length_after"])
        if lengths[0] != lengths[1]:
            yield Finding(code, f"{asked} changed the cache length", {}, *lengths)
            return
    if trace.has("refusal.before", "refusal.after"):
        axes = ("layer", "key_or_value", "kv_head", "cache_row", "channel")
        before, after = trace["refusal.before"], trace["refusal.after"]
        yield from equal(code, f"{asked} wrote to the cache", before, after, axes)


@oracle("COMMIT.REJECTED_UNREACHABLE", "cache.length", "commit.tokens", "round.tokens")
def rejected_unreachable(trace: Trace) -> Iterator[Finding]:
    """Clause M11: the rows that the engine will show to the next round."""
    expected = prefix_length(trace) + len(trace["commit.tokens"])
    observed = int(trace["cache.length"])
    if observed > expected:
        message = "rejected rows are still visible behind the published ones"
        yield Finding("COMMIT.REJECTED_UNREACHABLE", message, {}, expected, observed)


def _may_end(trace: Trace) -> bool:
    return trace.coordinate.end_of_sequence is not None


@oracle("COMMIT.END_OF_SEQUENCE", "commit.tokens", instead=("generation.tokens",), applies=_may_end)
def end_of_sequence(trace: Trace) -> Iterator[Finding]:
    """Clause M12, of a round or of a whole generation."""
    name = "commit.tokens" if trace.has("commit.tokens") else "generation.tokens"
    tokens, end = trace[name], trace.coordinate.end_of_sequence
    ends = np.flatnonzero(tokens == end)
    if len(ends) and ends[0] + 1 < len(tokens):
        where = {"place": int(ends[0]) + 1}
        observed = int(tokens[ends[0] + 1])
        message = "a token is published behind the end of sequence"
        yield Finding("COMMIT.END_OF_SEQUENCE", message, where, "nothing", observed)
