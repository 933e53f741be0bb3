"""Oracle of `spec/proposal.md`: from a frontier to packed tokens and candidate paths."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from medusa_oracles.judge import equal, oracle
from medusa_oracles.tree import expected_tree, gather_rows
from medusa_spec.arrays import FloatArray, IntArray
from medusa_spec.findings import Finding
from medusa_spec.stages import Proposal, TreeBuffers
from medusa_spec.trace import Trace


def derive_table(target: FloatArray, heads: FloatArray, topk: int) -> IntArray:
    """Clauses Q1 and Q2: the candidate token of every slot, `[1 + K*TOPK]`.

    `target` is `[V]`, `heads` `[K, V]`. Equal logits go to the lower token id.
    """
    ranked = np.argsort(-heads, axis=-1, kind="stable")[:, :topk]
    return np.concatenate([[np.argmax(target)], ranked.reshape(-1)]).astype(np.int64)


def derive_proposal(table: IntArray, tree: TreeBuffers, sentinel: int = -1) -> Proposal:
    """Clauses Q3 and Q4: packed tokens `[N]` by slot, candidates `[R, W]` by retrieval."""
    packed = table[tree.slots]
    candidates = gather_rows(packed, tree.retrieval, sentinel)
    return Proposal(table, packed, candidates)


@oracle("PROPOSAL.ROOT_FROM_TARGET", "proposal.packed", "frontier.target")
def root_from_target(trace: Trace) -> Iterator[Finding]:
    """Clause Q1: slot zero and packed row zero."""
    target = trace["frontier.target"]
    root = int(np.argmax(target))
    greatest = np.flatnonzero(target == target[root])
    lawful = set(greatest.tolist()) if trace.dialect.topk_ties == "any" else {root}
    for name in filter(trace.has, ("proposal.table", "proposal.packed")):
        observed = int(trace[name][0]) if len(trace[name]) else None
        if observed not in lawful:
            message = f"the root in {name} is not the greatest target logit of this frontier"
            if observed in greatest:
                message = f"equal logits: the lower token is the root, and {name} has another"
            yield Finding("PROPOSAL.ROOT_FROM_TARGET", message, {"row": 0}, root, observed)
            return


@oracle(
    "PROPOSAL.TOPK",
    "proposal.table",
    "frontier.heads",
    "frontier.target",
    instead=("proposal.packed", "frontier.heads", "frontier.target"),
)
def topk(trace: Trace) -> Iterator[Finding]:
    """Clause Q2: every slot, or the token of every node where no table was observed."""
    if trace.dialect.topk_ties == "any":
        yield from _ranked_logits(trace)
        return
    if not trace.has("proposal.table"):
        table = derive_table(
            trace["frontier.target"], trace["frontier.heads"], trace.coordinate.topk
        )
        message = "a node's token is not its head's token of its rank"
        slots, packed = expected_tree(trace).slots, trace["proposal.packed"]
        # Row zero is the business of Q1.
        expected = np.concatenate([packed[:1], table[slots[1:]]])
        paths = expected_tree(trace).paths
        for finding in equal("PROPOSAL.TOPK", message, expected, packed, ("row",)):
            head = len(paths[finding.where["row"]]) - 1 if finding.where else 0
            yield _of_equals(finding, trace["frontier.heads"][head])
        return
    heads, width = trace["frontier.heads"], trace.coordinate.topk
    expected = derive_table(trace["frontier.target"], heads, width)[1:].reshape(len(heads), width)
    observed = trace["proposal.table"][1:]
    message = "a head's ranks are not its tokens in descending order of logits"
    if observed.size == expected.size:
        observed = observed.reshape(expected.shape)
    for finding in equal("PROPOSAL.TOPK", message, expected, observed, ("head", "rank")):
        yield _of_equals(finding, heads[finding.where.get("head", 0)])


def _of_equals(finding: Finding, logits: FloatArray) -> Finding:
    """The finding, which says so where the rank went to a later one of equal logits."""
    if finding.difference is None:
        return finding
    expected, observed = finding.expected, finding.observed
    if expected < observed < len(logits) and logits[expected] == logits[observed]:
        message = "equal logits: the lower token ranks first, and another was taken"
        return replace(finding, message=message)
    return finding


def _ranked_logits(trace: Trace) -> Iterator[Finding]:
    """Clause Q2 where equal logits may take any order: the logit of each rank, and no token twice.

    Of every slot where a whole table was observed; else of every node.
    """
    code, heads = "PROPOSAL.TOPK", trace["frontier.heads"]
    ranked = -np.sort(-heads, axis=-1)
    chosen: dict[int, dict[int, int]] = {}
    for where, token in _drafted(trace):
        head, rank = where["head"], where["rank"]
        expected = float(ranked[head, rank])
        logit = float(heads[head, token]) if 0 <= token < heads.shape[1] else None
        if logit != expected:
            message = "a token's logit is not the one of its rank"
            yield Finding(code, message, where, expected, logit)
            return
        ranks = chosen.setdefault(head, {})
        if ranks.get(rank, token) != token or any(
            token == other for place, other in ranks.items() if place != rank
        ):
            message = "a head's ranks are not different tokens, one each"
            yield Finding(code, message, where, ranks.get(rank), token)
            return
        ranks[rank] = token


def _drafted(trace: Trace) -> Iterator[tuple[dict[str, int], int]]:
    """Every draft that was observed, and the head and rank that it is of."""
    heads, width = len(trace["frontier.heads"]), trace.coordinate.topk
    table = trace["proposal.table"] if trace.has("proposal.table") else np.zeros(0)
    if len(table) == 1 + heads * width:
        for place, token in enumerate(table[1:].tolist()):
            yield {"head": place // width, "rank": place % width}, token
        return
    packed = trace["proposal.packed"]
    for row, path in enumerate(expected_tree(trace).paths[1:], 1):
        yield {"row": row, "head": len(path) - 1, "rank": path[-1]}, int(packed[row])


@oracle("PROPOSAL.GATHER", "proposal.packed", "proposal.candidates")
def gather(trace: Trace) -> Iterator[Finding]:
    """Clause Q3: from what was observed of the step before, so that no fault is reported twice."""
    code, tree = "PROPOSAL.GATHER", expected_tree(trace)
    packed, candidates = trace["proposal.packed"], trace["proposal.candidates"]
    found: list[Finding] = []
    if trace.has("proposal.table"):
        table = trace["proposal.table"]
        slots = 1 + trace.coordinate.heads * trace.coordinate.topk
        if len(table) != slots:
            yield Finding(code, "the number of candidate slots differs", {}, slots, len(table))
            return
        message = "a packed token is not the one in its slot"
        found = list(equal(code, message, table[tree.slots], packed, ("row",)))
    if not found and candidates.shape == tree.retrieval.shape:
        message = "a candidate token is not the packed one of its path"
        gathered = gather_rows(packed, tree.retrieval, 0)
        observed = np.where(tree.retrieval < 0, 0, candidates)
        found = list(equal(code, message, gathered, observed, ("path", "entry")))
    yield from found


@oracle("PROPOSAL.PADDING_MASKED", "proposal.candidates")
def padding_masked(trace: Trace) -> Iterator[Finding]:
    """Clause Q4."""
    code, candidates = "PROPOSAL.PADDING_MASKED", trace["proposal.candidates"]
    retrieval = expected_tree(trace).retrieval
    if candidates.shape != retrieval.shape:
        message = "candidate paths have another shape than retrieval"
        yield Finding(code, message, {}, list(retrieval.shape), list(candidates.shape))
        return
    named = np.argwhere((retrieval < 0) & (candidates >= 0))
    if len(named):
        path, entry = map(int, named[0])
        where = {"path": path, "entry": entry}
        observed = int(candidates[path, entry])
        yield Finding(code, "a padded entry names a token", where, "a sentinel", observed)
