"""Documents of `check` and `verify` for the tests of the reports: written out, never run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any

from hypothesis import strategies as st

import medusa_manifests
from medusa_mutations import mutations
from medusa_spec.registry import AROUND, CONTRACTS, invariants
from medusa_spec.stages import STAGES

VERSIONS = {"python": "3.12.1", "medusa-oracles": "0.2.0", "numpy": "2.4.6"}
ROUND = ("commit", "cache", "forward", "generate")
"""Stages that an engine without a cache of its own does not have."""

IDLE = ("commit", "round", "coordinate", *AROUND)
"""Contracts that nothing of such an engine exercises."""


def finding(code: str, coordinate: str = "six-node", **changes: Any) -> dict[str, Any]:
    """A finding document; every field may be changed."""
    invariant = invariants()[code]
    return {
        "format": "medusa-finding/1",
        "code": code,
        "contract": invariant.contract,
        "clause": invariant.clause,
        "chapter": f"spec/{invariant.contract}.md",
        "section": invariant.section,
        "message": "what was observed is not what was owed",
        "where": {},
        "expected": 1,
        "observed": 2,
        "difference": None,
        "usual_cause": "A usual cause.",
        "tree": None,
        "follows": [],
        "coordinate": medusa_manifests.load(coordinate).document(),
        "generation": 0,
        "round": 0,
        "found_on": 1,
        "target": {"kind": "module", "text": "my_engine:factory", "folder": "."},
        "dtype": "float64",
        "device": "cpu",
        "seed": 0,
        "replay": f"medusa-oracles replay findings/01-{code}.json",
        "versions": VERSIONS,
        **changes,
    }


MASK = finding(
    "TREE.MASK_IS_ANCESTRY",
    message="visibility is not ancestry",
    where={"row": 4, "key": 1},
    expected=True,
    observed=False,
    difference={
        "greatest": None,
        "where": {"row": 4, "key": 1},
        "allowed": None,
        "entries": 6,
        "of": 36,
    },
    usual_cause="The mask was built from each node's parent alone, or transposed.",
    tree="root\n├─ 1\n│  ├─ 3\n│  └─ 4  <--\n└─ 2\n   └─ 5",
    follows=[
        {"code": "VERIFICATION.RECTANGULAR_MASK", "findings": 31},
        {"code": "VERIFICATION.PATH_LOGITS", "findings": 12},
    ],
    found_on=57,
)
RETRIEVAL = finding(
    "TREE.RETRIEVAL_MAXIMAL",
    message="the retrieval rows do not end at the leaves",
    where={"path": 2},
    expected=[[0, 1, 3], [0, 1, 4], [0, 2, 5]],
    observed=[[0, 1, 3], [0, 1, 4], [0, 2, -1]],
    usual_cause="A leaf was taken for an inner node.",
    tree="root",
    found_on=4,
    replay="medusa-oracles replay findings/02-TREE.RETRIEVAL_MAXIMAL.json",
)
THRESHOLD = finding(
    "POSTERIOR.THRESHOLD",
    "posterior-fast-typical",
    message="the threshold is not min(epsilon, alpha*exp(-H))",
    where={"path": 1, "edge": 0},
    expected=0.088,
    observed=0.3,
    difference={
        "greatest": 0.212,
        "where": {"path": 1, "edge": 0},
        "allowed": 1e-9,
        "entries": 4,
        "of": 9,
    },
    usual_cause="The greater of the two bounds was taken, or epsilon and alpha were exchanged.",
    found_on=23,
    replay="medusa-oracles replay findings/03-POSTERIOR.THRESHOLD.json",
)


def check(
    verdict: str = "pass",
    statuses: Mapping[str, str] | None = None,
    findings: Sequence[dict[str, Any]] = (),
    absent: Sequence[str] = (),
    reasons: Mapping[str, str] | None = None,
    **changes: Any,
) -> dict[str, Any]:
    """A document of `check`: every invariant passes that `statuses` does not name."""
    statuses, reasons = statuses or {}, reasons or {}
    rows = []
    for code, invariant in invariants().items():
        status = statuses.get(code, "pass")
        idle = status in ("not-exercised", "incompetent")
        rows.append(
            {
                "code": code,
                "contract": invariant.contract,
                "clause": invariant.clause,
                "sight": invariant.sight,
                "status": status,
                "executed": 0 if idle else 89,
                "failed": 7 if status in ("fail", "expected-failure") else 0,
                "reason": reasons.get(code),
            }
        )
    return {
        "command": "check",
        "verdict": verdict,
        "target": {
            "kind": "module",
            "text": "my_engine:factory",
            "name": "my_engine",
            "version": "1.4.2",
            "language": "Python",
        },
        "dialect": {},
        "spec_version": "0.2.0",
        "suite_version": "0.2.0",
        "commit": "6f1c0de94b6a4f7f8f10a1f0c2b7f8d0e9a35b11",
        "seed": 0,
        "max_examples": 60,
        "dtype": "float64",
        "device": "cpu",
        "coordinates": 89,
        "capabilities": [stage(name, name not in absent) for name in STAGES],
        "contracts": [tally(name, rows) for name in CONTRACTS],
        "invariants": rows,
        "findings": deepcopy(list(findings)),
        "incidents": [],
        "expected_failures": [],
        "seconds": 12.34,
        "versions": VERSIONS,
        **changes,
    }


def stage(name: str, present: bool, **changes: Any) -> dict[str, Any]:
    """A line of the capabilities."""
    return {
        "stage": name,
        "present": present,
        "calls": 1234 if present else 0,
        "unsupported": 0,
        "reasons": [],
        "incidents": 0,
        **changes,
    }


def tally(contract: str, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """A contract's counts."""
    own = [row for row in rows if row["contract"] == contract]
    many = Counter(row["status"] for row in own)
    return {
        "contract": contract,
        "planned": len(own),
        "executed": sum(row["executed"] > 0 for row in own),
        "failed": many["fail"],
        "not_exercised": many["not-exercised"],
        "incompetent": many["incompetent"],
        "expected_to_fail": many["expected-failure"],
    }


def idle(*contracts: str) -> dict[str, str]:
    """Statuses of contracts that were not exercised."""
    return {c: "not-exercised" for c, i in invariants().items() if i.contract in contracts}


def incident(kind: str, stage: str, coordinate: str, text: str, times: int = 1) -> dict[str, Any]:
    """An answer that could not be judged."""
    return {"kind": kind, "stage": stage, "coordinate": coordinate, "text": text, "times": times}


def excuse(code: str, reason: str, outcome: str) -> dict[str, Any]:
    """An entry of the expected failures, without link or expiry."""
    return {"code": code, "reason": reason, "link": None, "expires": None, "outcome": outcome}


def passing() -> dict[str, Any]:
    """An engine that does all of it rightly."""
    return check()


def failing() -> dict[str, Any]:
    """An engine of three faults that has no cache, and two entries in its file of excuses."""
    failed = ("TREE.MASK_IS_ANCESTRY", "TREE.RETRIEVAL_MAXIMAL", "POSTERIOR.THRESHOLD")
    folded = ("VERIFICATION.RECTANGULAR_MASK", "VERIFICATION.PATH_LOGITS")
    statuses = idle(*IDLE) | dict.fromkeys((*failed, *folded), "fail")
    statuses |= {"PROPOSAL.TOPK": "expected-failure", "HEADS.PROJECTION": "unexpected-pass"}
    reasons = dict.fromkeys(idle(*IDLE), "the engine has no commit")
    reasons |= {"PROPOSAL.TOPK": "ties go to the greater token", "HEADS.PROJECTION": "old release"}
    branching = stage("compile_tree", True, unsupported=3, reasons=["only branching trees"])
    capabilities = [stage(name, name not in ROUND) for name in STAGES]
    return check(
        "fail",
        statuses,
        [MASK, RETRIEVAL, THRESHOLD],
        reasons=reasons,
        capabilities=[branching if c["stage"] == "compile_tree" else c for c in capabilities],
        dialect={
            "mask": "additive",
            "slots": "own",
            "policy": {"retrieval_order": "pinned", "sentinel": -2},
            "reasons": {"slots": "slots belong to a parent's group", "policy": "it has no other"},
        },
        expected_failures=[
            excuse("PROPOSAL.TOPK", "ties go to the greater token", "as-expected")
            | {"link": "https://example.org/issues/7", "expires": "2027-01-31"},
            excuse("HEADS.PROJECTION", "old release", "unexpected-pass"),
            excuse("TREE.NO_SUCH_RULE", "misspelt", "unknown-code")
            | {"link": "javascript:alert(1)"},
        ],
    )


def inconclusive() -> dict[str, Any]:
    """An engine in another language that crashes, hangs and talks rubbish."""
    codes = [c for c, i in invariants().items() if i.contract in ("verification", "commit")]
    return check(
        "inconclusive",
        idle("round", "heads", *AROUND) | dict.fromkeys(codes, "incompetent"),
        absent=(
            *("apply_heads", "align_heads", "search_tree", "law", "sample"),
            *("train_step", "load_checkpoint", "cost", "publish_claims", "generate"),
        ),
        reasons=dict.fromkeys(codes, "verify hung")
        | dict.fromkeys(idle("round"), "the engine has no generate, forward")
        | dict.fromkeys(idle("search"), "the engine has no search_tree")
        | dict.fromkeys(idle("exactness"), "the engine has no law")
        | dict.fromkeys(idle("training"), "the engine has no train_step")
        | dict.fromkeys(idle("checkpoint"), "the engine has no load_checkpoint")
        | dict.fromkeys(idle("cost"), "the engine has no cost")
        | dict.fromkeys(idle("claims"), "the engine has no publish_claims")
        | dict.fromkeys(idle("heads"), "apply_heads is not supported: no heads"),
        target={
            "kind": "command",
            "text": "node engine.mjs --fast",
            "name": "tiny-engine",
            "version": None,
            "language": "JavaScript",
        },
        commit=None,
        incidents=[
            incident("hang", "verify", "a31-nine-row", "no reply within 10 s", 57),
            incident("crash", "commit", "six-node", f"TypeError: no rows\n{' ' * 4}at commit:88"),
            incident("rubbish", "propose", "chain-three", 'not JSON: "<b>rubbish</b>"', 2),
        ],
    )


def verification(verdict: str = "pass", **changes: Any) -> dict[str, Any]:
    """A document of `verify`: its kill matrix is the whole catalog, one mutant of it at large."""
    mutants = []
    for number, mutation in enumerate(mutations().values()):
        also = list(invariants())[number % 60 : number % 60 + number % 7]
        fired = [code for code in invariants() if code in {mutation.killer, *also}]
        mutants.append(
            {
                "id": mutation.id,
                "contract": mutation.contract,
                "killer": mutation.killer,
                "killed": True,
                "status": "killed",
                "fired": fired,
                "depth": invariants()[fired[0]].sight,
                "examples": 1 + number % 9,
                "crash": None,
            }
        )
    return {
        "verdict": verdict,
        "spec_version": "0.2.0",
        "suite_version": "0.2.0",
        "commit": None,
        "engine": "reference",
        "device": "cpu",
        "dtype": "float64",
        "seed": 0,
        "max_examples": 60,
        "contracts": list(CONTRACTS),
        "coordinates": 89,
        "invariants": [
            {
                "code": code,
                "contract": invariant.contract,
                "sight": invariant.sight,
                "planned": 89,
                "executed": 89,
                "failed": 0,
            }
            for code, invariant in invariants().items()
        ],
        "mutants": mutants,
        "findings": [],
        "crashes": [],
        "checkout": None,
        "seconds": 33.61,
        "versions": VERSIONS | {"torch": "2.13.0"},
        **changes,
    }


def at_large() -> dict[str, Any]:
    """A `verify` that failed in each way that there is."""
    document = verification("fail")
    alive = {"killed": False, "status": "survived", "fired": [], "depth": None}
    document["mutants"][3] |= alive
    document["mutants"][5] |= alive | {"status": "incompetent", "crash": "IndexError in commit"}
    document["invariants"][9] |= {"failed": 2}
    document["crashes"] = [
        {"coordinate": "six-node", "section": "decoding", "error": "ValueError: <b>no</b>"}
    ]
    document["checkout"] = {"medusa/model/utils.py": "differs", "medusa/model/a.py": "matches"}
    return document


def texts() -> st.SearchStrategy[str]:
    """What an engine may say: all of Unicode, and what means something to a page."""
    odd = ["</script>", "<!--", "]]>", "&amp;", "{{ 7*7 }}", "\x00", "\ud800", "\u202e", "\x1b[2J"]
    return st.lists(st.text(max_size=8) | st.sampled_from(odd), max_size=4).map("".join)


@st.composite
def documents(draw: st.DrawFn) -> dict[str, Any]:
    """Any document of `check`; its parts need not agree, for a report says what it is told."""
    status = st.sampled_from(
        ["pass", "fail", "expected-failure", "unexpected-pass", "not-exercised", "incompetent"]
    )
    statuses = draw(st.dictionaries(st.sampled_from(list(invariants())), status, max_size=6))
    reasons = {code: draw(texts()) for code in statuses}
    findings = [
        finding(
            code,
            message=draw(texts()),
            expected=draw(_values()),
            observed=draw(_values()),
            usual_cause=draw(texts()),
            tree=draw(st.none() | texts()),
            where=draw(st.dictionaries(st.sampled_from(["row", "key", "path"]), _numbers())),
        )
        for code in draw(st.lists(st.sampled_from(list(invariants())), max_size=3))
    ]
    incidents = st.fixed_dictionaries(
        {
            "kind": st.sampled_from(["crash", "hang", "rubbish", "endless", "exit"]),
            "stage": st.sampled_from(list(STAGES)),
            "coordinate": texts(),
            "text": texts(),
            "times": st.integers(1, 99),
        }
    )
    document = check(
        draw(st.sampled_from(["pass", "fail", "inconclusive"])),
        statuses,
        findings,
        reasons=reasons,
        dialect=draw(st.dictionaries(texts(), _values(), max_size=2)),
        incidents=draw(st.lists(incidents, max_size=2)),
    )
    document["target"] |= {"name": draw(texts()), "text": draw(texts()), "version": draw(texts())}
    return document


def _numbers() -> st.SearchStrategy[int]:
    return st.integers(-2, 40)


def _values() -> st.SearchStrategy[Any]:
    plain = (
        st.none()
        | st.booleans()
        | st.integers()
        | texts()
        | st.floats(allow_nan=False, allow_infinity=False)
    )
    return plain | st.lists(plain, max_size=3) | st.lists(st.lists(plain, max_size=3), max_size=3)
