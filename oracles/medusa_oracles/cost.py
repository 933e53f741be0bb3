"""Oracle of `spec/cost.md`: every count of a round by its formula, in whole numbers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import partial

import numpy as np

from medusa_oracles.heads import derive_parameter_count
from medusa_oracles.judge import close, equal, oracle_beside
from medusa_spec.coordinate import CostProfile, Workload
from medusa_spec.findings import Finding
from medusa_spec.trace import Tolerance, Trace


@dataclass(frozen=True, slots=True)
class TreeSizes:
    """A tree as a ledger sees it: its sizes, and no order of its rows."""

    rows: int
    """`N`, with the root."""
    visible: int
    """Entries of its mask that are true: a row sees its ancestors and itself."""
    paths: int
    """`R`, maximal paths."""
    width: int
    """`D`, rows of the longest, the root's too."""


def derive_sizes(workload: Workload) -> TreeSizes:
    """The sizes of a workload's tree."""
    rows = [(), *workload.paths]
    inner = {path[:-1] for path in workload.paths}
    return TreeSizes(
        rows=len(rows),
        visible=sum(len(path) + 1 for path in rows),
        paths=len(set(rows) - inner),
        width=1 + max(map(len, rows)),
    )


def derive_head_rows(workload: Workload) -> int:
    """Clause F2: `T_h`."""
    return derive_sizes(workload).rows if workload.head_rows == "all" else 1


def derive_head_flops(workload: Workload) -> tuple[int, int]:
    """Clause F3: of the residual blocks, and of the projections."""
    width, each = workload.hidden, 2 * workload.heads * derive_head_rows(workload)
    return each * workload.head_blocks * width * width, each * width * workload.vocabulary


def derive_node_bytes(workload: Workload) -> int:
    """Keys and values of one packed row in all layers (0x07C)."""
    scalars = workload.layers * 2 * workload.kv_heads * workload.head_dim
    return scalars * workload.scalar_bytes


def derive_counts(workload: Workload) -> dict[str, int]:
    """Clauses F1 to F10, by the names of a ledger, in its order."""
    tree, active = derive_sizes(workload), derive_head_rows(workload)
    vocabulary, node = workload.vocabulary, derive_node_bytes(workload)
    parameters = derive_parameter_count(workload, workload.heads)
    residual, projection = derive_head_flops(workload)
    return {
        "head_parameters": parameters,
        "head_bytes": parameters * workload.scalar_bytes,
        "head_rows": active,
        "residual_flops": residual,
        "projection_flops": projection,
        "lm_flops": 2 * tree.rows * workload.hidden * vocabulary,
        "dense_pairs": tree.rows * (workload.prefix + tree.rows),
        "allowed_pairs": tree.rows * workload.prefix + tree.visible,
        "logit_elements": tree.rows * vocabulary,
        "head_logit_elements": workload.heads * active * vocabulary,
        "path_logit_elements": tree.paths * tree.width * vocabulary,
        "staged_bytes": tree.rows * node,
        "committed_bytes": workload.published * node,
    }


def derive_expected(profile: CostProfile) -> float:
    """`E[G]`, published tokens of a round."""
    return profile.published / profile.rounds


def derive_overhead(profile: CostProfile) -> float:
    """A round in baseline steps."""
    return profile.round / profile.baseline_step


def derive_speedup(profile: CostProfile) -> float:
    """Clause F11."""
    return derive_expected(profile) / derive_overhead(profile)


def derive_break_even(profile: CostProfile, tolerance: Tolerance | None = None) -> bool | None:
    """Clause F12; `None` where rounding alone decides, within a tolerance.

    Two quotients may be one double and no par, as 7/3 and .7/.3 are: whoever multiplies instead
    parts them. Par is certain only where it is exact, and its quotient is a double.
    """
    expected, overhead = derive_expected(profile), derive_overhead(profile)
    near = tolerance is not None and abs(expected - overhead) <= tolerance.rtol * overhead
    exact = Fraction(profile.round) / Fraction(profile.baseline_step)
    if near and not Fraction(expected) == exact == Fraction(profile.published, profile.rounds):
        return None
    return expected > overhead


cost_oracle = partial(oracle_beside, "cost")
"""An oracle of traces that count, whose coordinates say what."""


def workload_of(trace: Trace) -> Workload:
    """What was counted; every cost oracle applies only where there is something."""
    workload = trace.coordinate.cost
    assert workload is not None
    return workload


def profile_of(trace: Trace) -> CostProfile:
    """The profile; what reads it applies only where there is one."""
    profile = workload_of(trace).profile
    assert profile is not None
    return profile


def profiled(trace: Trace) -> bool:
    """Whether there is anything to divide."""
    return workload_of(trace).profile is not None


def counted(code: str, what: str, trace: Trace, *names: str) -> Iterator[Finding]:
    """A finding for each of these counts that is another number than its formula gives."""
    expected = derive_counts(workload_of(trace))
    for name in names:
        observed = trace[f"cost.{name}"].item()
        if observed != expected[name]:
            yield Finding(code, f"{name} is not {what}", {}, expected[name], observed)


@cost_oracle("COST.HEAD_PARAMETERS", "cost.head_parameters", "cost.head_bytes")
def head_parameters(trace: Trace) -> Iterator[Finding]:
    """Clause F1."""
    what = "what the heads add to the base model"
    names = "head_parameters", "head_bytes"
    yield from counted("COST.HEAD_PARAMETERS", what, trace, *names)


@cost_oracle("COST.ALL_ROWS_OR_TERMINAL", "cost.head_rows")
def all_rows_or_terminal(trace: Trace) -> Iterator[Finding]:
    """Clause F2: what is said, and what the heads' logits say where they are counted."""
    code, workload = "COST.ALL_ROWS_OR_TERMINAL", workload_of(trace)
    rows = "every packed row" if workload.head_rows == "all" else "the terminal row alone"
    for finding in counted(code, f"{rows}, where heads are declared to run", trace, "head_rows"):
        yield finding
        return
    declared, nodes = derive_head_rows(workload), derive_sizes(workload).rows
    other = 1 if workload.head_rows == "all" else nodes
    each = workload.heads * workload.vocabulary
    # Any other number is no call path's, and only a wrong count.
    if not each or other == declared or not trace.has("cost.head_logit_elements"):
        return
    if trace["cost.head_logit_elements"].item() == other * each:
        message = "heads give the logits of the other call path than the one that is said"
        yield Finding(code, message, {}, declared, other)


@cost_oracle("COST.HEAD_FLOPS", "cost.residual_flops", "cost.projection_flops")
def head_flops(trace: Trace) -> Iterator[Finding]:
    """Clause F3."""
    what = "the arithmetic of all heads on all their rows"
    names = "residual_flops", "projection_flops"
    yield from counted("COST.HEAD_FLOPS", what, trace, *names)


@cost_oracle("COST.LM_PROJECTION", "cost.lm_flops")
def lm_projection(trace: Trace) -> Iterator[Finding]:
    """Clause F4."""
    what = "the projection of every packed row"
    yield from counted("COST.LM_PROJECTION", what, trace, "lm_flops")


@cost_oracle("COST.DENSE_PAIRS", "cost.dense_pairs")
def dense_pairs(trace: Trace) -> Iterator[Finding]:
    """Clause F5."""
    what = "every packed row against every row of the cache"
    yield from counted("COST.DENSE_PAIRS", what, trace, "dense_pairs")


@cost_oracle("COST.ALLOWED_PAIRS", "cost.allowed_pairs")
def allowed_pairs(trace: Trace) -> Iterator[Finding]:
    """Clause F6."""
    what = "what the mask leaves of prefix and tree"
    yield from counted("COST.ALLOWED_PAIRS", what, trace, "allowed_pairs")


@cost_oracle("COST.LOGITS", "cost.logit_elements", "cost.head_logit_elements")
def logits(trace: Trace) -> Iterator[Finding]:
    """Clause F7."""
    what = "a vocabulary for every row"
    yield from counted("COST.LOGITS", what, trace, "logit_elements", "head_logit_elements")


@cost_oracle("COST.PATH_LOGITS", "cost.path_logit_elements")
def path_logits(trace: Trace) -> Iterator[Finding]:
    """Clause F8."""
    what = "a vocabulary for every entry of every retrieval row"
    yield from counted("COST.PATH_LOGITS", what, trace, "path_logit_elements")


@cost_oracle("COST.KV_STAGED", "cost.staged_bytes")
def kv_staged(trace: Trace) -> Iterator[Finding]:
    """Clause F9."""
    what = "the keys and values of every packed row"
    yield from counted("COST.KV_STAGED", what, trace, "staged_bytes")


@cost_oracle("COST.KV_COMMITTED", "cost.committed_bytes")
def kv_committed(trace: Trace) -> Iterator[Finding]:
    """Clause F10."""
    what = "the keys and values of every published row"
    yield from counted("COST.KV_COMMITTED", what, trace, "committed_bytes")


@cost_oracle("COST.SPEEDUP", "cost.overhead", "cost.speedup", applies=profiled)
def speedup(trace: Trace) -> Iterator[Finding]:
    """Clause F11."""
    profile, within = profile_of(trace), trace.policy_tolerance
    rates = {"overhead": derive_overhead(profile), "speedup": derive_speedup(profile)}
    for name, expected in rates.items():
        message = f"{name} is not what the profile says"
        observed = trace[f"cost.{name}"]
        yield from close("COST.SPEEDUP", message, np.asarray(expected), observed, (), within)


@cost_oracle(
    "COST.BREAK_EVEN",
    "cost.breaks_even",
    applies=lambda t: (
        profiled(t) and derive_break_even(profile_of(t), t.policy_tolerance) is not None
    ),
)
def break_even(trace: Trace) -> Iterator[Finding]:
    """Clause F12."""
    expected = np.asarray(derive_break_even(profile_of(trace)))
    message = "a round pays where it publishes more tokens than it takes baseline steps"
    yield from equal("COST.BREAK_EVEN", message, expected, trace["cost.breaks_even"], ())


UNFOUNDED = {"overhead": "an overhead", "speedup": "a speedup", "breaks_even": "a verdict"}
"""What only a profile gives."""


@cost_oracle("COST.PROFILE_EVIDENCE", "cost.claim")
def profile_evidence(trace: Trace) -> Iterator[Finding]:
    """Clause F13."""
    code, profile, claim = "COST.PROFILE_EVIDENCE", workload_of(trace).profile, trace["cost.claim"]
    if claim.get("counts") != "derived":
        message = "counts are claimed to be something else than derived"
        yield Finding(code, message, {}, "derived", claim.get("counts"))
    expected = None if profile is None else profile.evidence
    if claim.get("profile") != expected:
        message = "a speedup is claimed to be another kind of figure than its profile"
        yield Finding(code, message, {}, expected, claim.get("profile"))
    for name in sorted(map(str, claim.keys() - {"counts", "profile", "batch"})):
        message = f"the claim carries {name[:80]}, which its form does not have"
        yield Finding(code, message, {}, None, claim.get(name))
    if profile is not None:
        return
    for name, what in UNFOUNDED.items():
        if trace.has(f"cost.{name}"):
            message = f"there is {what}, and nothing that it was divided by"
            yield Finding(code, message, {}, None, trace[f"cost.{name}"].tolist())


@cost_oracle("COST.BATCH_ONE", "cost.claim")
def batch_one(trace: Trace) -> Iterator[Finding]:
    """Clause F14."""
    expected, observed = workload_of(trace).batch, trace["cost.claim"].get("batch")
    if observed != expected:
        message = "the ledger is claimed for another batch than the one sequence that was counted"
        yield Finding("COST.BATCH_ONE", message, {}, expected, observed)
