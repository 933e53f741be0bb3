"""The engine that is not Python, judged; and the same engine with one line of it wrong."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import medusa_manifests
from medusa_conformance.crafted import along_paths, coarse_frontier, posterior_logits
from medusa_conformance.remote import Remote
from medusa_oracles import judge
from medusa_oracles.tree import tree_of
from medusa_spec import Coordinate, Refused, Trace
from medusa_spec.stages import STAGES, answer_of, arrays_of

SOURCE = Path(__file__).parents[2] / "conformance" / "examples" / "tree_engine.mjs"
NODE = shutil.which("node")

pytestmark = pytest.mark.skipif(NODE is None, reason="Node.js is not installed")

MANIFESTS = (
    "six-node",
    "a31-nine-row",
    "rank-gaps",
    "root-only",
    "regular-3-2-2",
    "likelihood-tie",
    "threshold-tie",
    "posterior-greedy",
    "posterior-fast-typical",
    "public-mc-sim-7b-63",
)

TREE = {f"TREE.{name}" for name in ("ROW_ORDER", "SLOT", "MASK_IS_ANCESTRY", "POSITION_IS_DEPTH")}
TREE |= {f"TREE.RETRIEVAL_{name}" for name in ("MAXIMAL", "CHAIN")} | {"TREE.SENTINEL"}


@pytest.fixture(scope="module")
def remote() -> Iterator[Remote]:
    assert NODE is not None
    with Remote([NODE, str(SOURCE)], SOURCE.parent) as started:
        yield started


def trace(coordinate: Coordinate, arrays: dict[str, Any], documents: dict[str, Any]) -> Trace:
    forward, policy = medusa_manifests.tolerance("float64"), medusa_manifests.tolerance("policy")
    return Trace(coordinate, forward, policy, arrays, documents)


def observed(remote: Remote, coordinate: Coordinate) -> Trace:
    """The tree, a proposal over it, and a selection from logits that many of its edges pass."""

    def ask(stage: str, *given: Any) -> Any:
        return answer_of(STAGES[stage].answer, getattr(engine, stage)(*given))

    engine = remote.engine(coordinate, coordinate.capacity)
    policy, topk = coordinate.policy, coordinate.topk
    paths = coordinate.paths[::-1]
    tree = ask("compile_tree", paths, topk, policy.retrieval_order, policy.sentinel)
    frontier = coarse_frontier(coordinate)
    proposal = ask("propose", tree, frontier, topk, policy.sentinel)
    rows = posterior_logits(coordinate.posterior, tree_of(coordinate), frontier.target.size)
    path_logits = along_paths(rows, tree)
    selection = ask("select", proposal.candidates, path_logits, policy)
    arrays = {
        **arrays_of("tree", tree),
        **arrays_of("frontier", frontier),
        **arrays_of("proposal", proposal),
        **arrays_of("selection", selection),
        "selection.candidates": proposal.candidates,
        "selection.path_logits": path_logits,
    }
    if coordinate.branching is not None:
        arrays["tree.node_count"] = np.asarray(ask("node_count", coordinate.branching))
    documents = {"tree.paths": tree.paths, "selection.refused": None}
    return trace(coordinate, arrays, documents)


@pytest.mark.parametrize("name", MANIFESTS)
def test_it_keeps_every_rule_of_its_stages(remote: Remote, name: str) -> None:
    coordinate = medusa_manifests.load(name)
    judgement = judge(observed(remote, coordinate))
    assert judgement.findings == ()
    greedy = coordinate.policy.mode == "greedy"
    match = "POSTERIOR.GREEDY_MATCH" if greedy else "POSTERIOR.TYPICAL_MATCH"
    expected = TREE | {"PROPOSAL.ROOT_FROM_TARGET", "PROPOSAL.TOPK", "PROPOSAL.GATHER", match}
    expected |= {"TREE.NODE_COUNT"} if coordinate.branching else set()
    assert expected <= set(judgement.executed)


@pytest.mark.parametrize("spoiled", [np.nan, np.inf, -np.inf])
def test_it_refuses_what_is_no_number(remote: Remote, spoiled: float) -> None:
    coordinate = medusa_manifests.load("six-node")
    engine = remote.engine(coordinate, coordinate.capacity)
    logits = np.zeros((2, 3, 8))
    logits[1, 2, 7] = spoiled
    candidates = np.array([[1, 2, -1], [1, 3, 4]])
    with pytest.raises(Refused, match="path 1, entry 2"):
        engine.select(candidates, logits, coordinate.policy)
    # Behind a path's end stands no logit that anybody reads.
    candidates[1, 2] = -1
    engine.select(candidates, logits, coordinate.policy)


def test_it_says_what_it_can_do(remote: Remote) -> None:
    said = remote.describe()
    assert (said.language, said.arrays) == ("JavaScript", "list")
    assert said.stages == {"compile_tree", "node_count", "propose", "select"}


CORRUPTIONS = {
    "TREE.MASK_IS_ANCESTRY": ("isPrefix(key, row)", "key.length <= row.length"),
    "TREE.SLOT": ("? 1 + (path.length", "? (path.length"),
    "PROPOSAL.TOPK": ("logits[b] - logits[a]", "logits[a] - logits[b]"),
    "POSTERIOR.THRESHOLD": ("Math.min(policy.epsilon", "Math.max(policy.epsilon"),
}


@pytest.mark.parametrize(("code", "change"), CORRUPTIONS.items())
def test_one_wrong_line_is_found(code: str, change: tuple[str, str], tmp_path: Path) -> None:
    text = SOURCE.read_text("utf-8")
    assert text.count(change[0]) == 1
    wrong = tmp_path / SOURCE.name
    wrong.write_text(text.replace(*change), "utf-8")
    assert NODE is not None
    with Remote([NODE, str(wrong)], tmp_path) as remote:
        seen = observed(remote, medusa_manifests.load("posterior-fast-typical"))
    assert code in {finding.code for finding in judge(seen).findings}
