"""What must be refused: logits that are no number, commits of nothing, and trees without room.

Functions of a `line.Line`, of which they are sections.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from medusa_conformance.incident import Incident
from medusa_conformance.translation import Engine
from medusa_oracles.tree import tree_of
from medusa_spec.arrays import Array
from medusa_spec.errors import Refused
from medusa_spec.trace import Trace

if TYPE_CHECKING:
    from medusa_conformance.line import Line


def unlawful_logits(line: Line) -> Iterator[Trace]:
    """A selection over logits one of which is no number.

    It stands in the root's row of every path, or at the end of the last path alone: nothing is
    judged there in this round, and the next root is chosen from it.
    """
    engine, policy = line.engine(), line.coordinate.policy
    candidates, vocabulary = line.lawful_proposal().candidates, line.coordinate.model.vocabulary
    terminal = int((tree_of(line.coordinate).retrieval[-1] >= 0).sum()) - 1
    every, last = slice(None), slice(-1, None)
    # As a probability, minus infinity is a lawful zero.
    lowest = np.nan if line.dialect.posterior_input == "probabilities" else -np.inf
    for place, value in (
        ((every, 0, every), np.nan),
        ((every, 0, last), np.inf),
        ((-1, terminal, 0), lowest),
    ):
        logits = np.zeros((*candidates.shape, vocabulary))
        logits[place] = value
        arrays = {"selection.candidates": candidates, "selection.path_logits": logits}
        ask = partial(engine.select, candidates, logits, policy)
        documents: dict[str, Any] = {"selection.refused": said_no(line, ask)}
        yield line.trace(arrays, documents)


def unlawful_commit(line: Line) -> Iterator[Trace]:
    """Commits that name no path, or more edges than their path has, or come without a tree."""
    retrieval = tree_of(line.coordinate).retrieval
    paths, longest = retrieval.shape
    edges = int((retrieval[0] >= 0).sum()) - 1
    for path, accepted in ((paths, 0), (-1, 0), (0, edges + 1), (0, longest), (0, -1)):
        engine = line.engine()
        tree, proposal = line.staged(engine)
        engine.verify(tree, proposal.packed)
        asked = f"a commit of path {path} with {accepted} accepted edges"
        seen = refusal(line, engine, asked, partial(engine.commit, path, accepted, None))
        yield seen
        if seen["refusal.refused"] is None:
            continue
        # Nothing has changed, so the tree is still there for a commit that is lawful.
        engine.commit(0, 0, None)
        again = partial(engine.commit, 0, 0, None)
        yield refusal(line, engine, "a second commit of one tree", again)
    engine = line.engine()
    tree, proposal = line.staged(engine)
    engine.verify(tree, proposal.packed)
    engine.prefill(line.coordinate.prefix)
    asked = "a commit of the tree of an earlier generation"
    yield refusal(line, engine, asked, partial(engine.commit, 0, 0, None))


def unlawful_staging(line: Line) -> Iterator[Trace]:
    """A tree, and a prefix, that are one row too large for the cache."""
    coordinate = line.coordinate
    capacity = len(coordinate.prefix) + coordinate.nodes - 1
    engine = line.engine(capacity)
    tree, proposal = line.staged(engine)
    asked = f"a tree of {coordinate.nodes} rows with room for one less"
    yield refusal(line, engine, asked, partial(engine.verify, tree, proposal.packed))
    asked = f"a prefix of {capacity + 1} tokens in a cache of {capacity}"
    yield refusal(line, engine, asked, partial(engine.prefill, [0] * (capacity + 1)))


def refusal(line: Line, engine: Engine, asked: str, ask: Callable[[], Any]) -> Trace:
    """Ask for what must be refused, and compare the cache before and after."""
    arrays = looked("before", engine)
    documents = {"refusal.asked": asked, "refusal.refused": said_no(line, ask)}
    return line.trace(arrays | looked("after", engine), documents)


def said_no(line: Line, ask: Callable[[], Any]) -> str | None:
    """What an engine answered to an unlawful request where it refused; `None` where it did not."""
    try:
        ask()
    except Refused as refused:
        return str(refused)
    except Incident as incident:
        if is_refusal(line, incident):
            return incident.text
        raise
    return None


def is_refusal(line: Line, incident: Incident) -> bool:
    """Whether an exception is how this engine refuses what is unlawful."""
    return line.dialect.refusals == "any-error" and incident.kind == "crash"


def looked(when: str, engine: Engine) -> dict[str, Array]:
    """The cache as far as the engine shows it."""
    if not engine.has("cache"):
        return {}
    view = engine.cache()
    seen = {when: view.backing, f"length_{when}": view.length}
    return {f"refusal.{name}": np.asarray(v) for name, v in seen.items() if v is not None}
