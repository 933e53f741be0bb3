"""The definitions, written out one row, one edge and one float at a time.

This is the slow road that everything faster is compared with: plain lists, quadratic loops, no
library but `math` and `fractions` has a part in it. A rank path is a tuple; `()` is the root.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any, NamedTuple

Path = tuple[int, ...]


class Winner(NamedTuple):
    """The index of the winning retrieval row, and how many of its suffix edges are accepted."""

    path: int
    accepted: int


def rows(paths: Sequence[Sequence[int]]) -> list[Path]:
    """The path of every packed row: the root, then `(length, path)` ascending (0x04A)."""
    return [(), *sorted((tuple(path) for path in paths), key=lambda path: (len(path), path))]


def leaves(paths: Sequence[Sequence[int]], order: str) -> list[Path]:
    """Paths that begin no other path, in the declared retrieval order."""
    packed = rows(paths)
    maximal = [u for u in packed if not any(v != u and v[: len(u)] == u for v in packed)]
    return maximal if order == "canonical" else maximal[::-1]


def tree(
    paths: Sequence[Sequence[int]], topk: int, order: str, sentinel: int
) -> dict[str, list[Any]]:
    """The four buffers of 0x04A, and each row's parent."""
    packed = rows(paths)
    retrieved = leaves(paths, order)
    width = 1 + max(len(leaf) for leaf in retrieved)
    retrieve_indices = []
    for leaf in retrieved:
        chain = [packed.index(leaf[:depth]) for depth in range(len(leaf) + 1)]
        retrieve_indices.append(chain + [sentinel] * (width - len(chain)))
    return {
        "tree_indices": [1 + (len(p) - 1) * topk + p[-1] if p else 0 for p in packed],
        "attention_mask": [[int(u[: len(v)] == v) for v in packed] for u in packed],
        "position_ids": [len(p) for p in packed],
        "retrieve_indices": retrieve_indices,
        "parents": [packed.index(p[:-1]) if p else -1 for p in packed],
    }


def packed_tokens(
    paths: Sequence[Sequence[int]], root: int, ranked: Sequence[Sequence[int]]
) -> list[int]:
    """The token of each packed row: the last rank of its path, read from the head of its depth."""
    return [ranked[len(p) - 1][p[-1]] if p else root for p in rows(paths)]


def candidates(
    retrieve_indices: Sequence[Sequence[int]], packed: Sequence[int], sentinel: int
) -> list[list[int]]:
    """The tokens of each retrieval row; padding stays padding."""
    return [[packed[u] if u >= 0 else sentinel for u in row] for row in retrieve_indices]


def distribution(probabilities: Mapping[int, float], rest: float, vocabulary: int) -> list[float]:
    """Named probabilities, and `rest` spread evenly over every other token."""
    share = rest / (vocabulary - len(probabilities))
    return [probabilities.get(token, share) for token in range(vocabulary)]


def path_logits(
    paths: Sequence[Sequence[int]],
    retrieve_indices: Sequence[Sequence[int]],
    distributions: Mapping[Path, Sequence[float]],
) -> list[list[list[float] | None]]:
    """Log probabilities at each retrieved row; None at padding and where no row is given."""
    packed = rows(paths)
    logits = {path: [math.log(p) for p in row] for path, row in distributions.items()}
    return [[logits.get(packed[u]) if u >= 0 else None for u in row] for row in retrieve_indices]


def _prefix(passes: Sequence[bool]) -> int:
    """How many edges pass before the first one that does not."""
    count = 0
    for passed in passes:
        if not passed:
            break
        count += 1
    return count


def greedy_passes(tokens: Sequence[int], logits: Sequence[Sequence[float] | None]) -> list[bool]:
    """Edge `j` passes where token `j+1` is the argmax of row `j` (0x04D); padding never does."""
    passes = []
    for row, token in zip(logits, tokens[1:], strict=False):
        passes.append(token >= 0 and row is not None and row.index(max(row)) == token)
    return passes


def greedy(candidate_rows: Sequence[Sequence[int]], logits: Sequence[Sequence[Any]]) -> Winner:
    """The first row with the longest prefix of argmax matches; row zero where none matches."""
    best = Winner(0, 0)
    for index, tokens in enumerate(candidate_rows):
        accepted = _prefix(greedy_passes(tokens, logits[index]))
        if accepted > best.accepted:
            best = Winner(index, accepted)
    return best


def softmax(row: Sequence[float], temperature: float) -> list[float]:
    """Probabilities after the temperature."""
    highest = max(row)
    powers = [math.exp((value - highest) / temperature) for value in row]
    total = sum(powers)
    return [power / total for power in powers]


def entropy(p: Sequence[float], guard: float) -> float:
    """`H = -sum p ln(p + guard)`, in nats."""
    return -sum(x * math.log(x + guard) for x in p)


def threshold(p: Sequence[float], policy: Any) -> float:
    """`min(epsilon, alpha exp(-H))` (0x04E)."""
    return float(min(policy.epsilon, policy.alpha * math.exp(-entropy(p, policy.entropy_guard))))


def fast_typical(
    candidate_rows: Sequence[Sequence[int]], logits: Sequence[Sequence[Any]], policy: Any
) -> Winner:
    """The likeliest of the rows with the longest prefix of `p > threshold`, the first on a tie.

    Likelihood is the sum of logs over the accepted edges alone.
    """
    best, best_likelihood = Winner(0, 0), 0.0
    for index, tokens in enumerate(candidate_rows):
        passes, logs = [], []
        for row, token in zip(logits[index], tokens[1:], strict=False):
            if token < 0 or row is None:
                break
            p = softmax(row, policy.temperature)
            passes.append(p[token] > threshold(p, policy))
            logs.append(math.log(p[token]))
        accepted = _prefix(passes)
        likelihood = sum(logs[:accepted])
        longer = accepted > best.accepted
        if longer or (accepted == best.accepted > 0 and likelihood > best_likelihood):
            best, best_likelihood = Winner(index, accepted), likelihood
    return best


def commit(
    prefix_length: int,
    retrieve_row: Sequence[int],
    candidate_row: Sequence[int],
    accepted: int,
    end_of_sequence: int | None = None,
) -> dict[str, Any]:
    """`G = a + 1` tokens and rows (0x06A), cut after the first end-of-sequence token."""
    published = accepted + 1
    for place in range(published):
        if candidate_row[place] == end_of_sequence:
            published = place + 1
            break
    return {
        "tokens": [candidate_row[j] for j in range(published)],
        "source": [prefix_length + retrieve_row[j] for j in range(published)],
        "destination": [prefix_length + j for j in range(published)],
        "length": prefix_length + published,
        "frontier_row": retrieve_row[published - 1],
    }


def increments(calibration: Any) -> list[list[Fraction]]:
    """The mass of each rank, exactly, of the decimals that a table was written in (0x04B)."""
    rows = [[Fraction(repr(top)) for top in row] for row in calibration.accuracy]
    if calibration.form == "cumulative":
        rows = [[top - before for before, top in zip([0, *row], row, strict=False)] for row in rows]
    return [row[: calibration.max_rank] for row in rows]


def weight(path: Sequence[int], masses: Sequence[Sequence[Fraction]]) -> Fraction:
    """The product along a path."""
    return math.prod((masses[head][rank] for head, rank in enumerate(path)), start=Fraction(1))


def search(calibration: Any) -> list[dict[str, Any]]:
    """Every decision of 0x04C, each from a frontier that is made anew out of the tree so far."""
    masses, tree, record = increments(calibration), [()], []
    while len(tree) <= calibration.nodes:
        children = [
            (*path, rank)
            for path in tree
            if len(path) < len(masses)
            for rank in range(calibration.max_rank)
        ]
        frontier = [path for path in children if path not in tree]
        if not frontier:
            break
        frontier.sort(key=lambda path: (-weight(path, masses), len(path), path))
        best, *others = frontier
        record.append(
            {
                "path": best,
                "weight": weight(best, masses),
                "frontier": len(frontier),
                "runner_up": others[0] if others else None,
                "runner_up_weight": weight(others[0], masses) if others else None,
            }
        )
        tree.append(best)
    return record


def ledger(workload: Any) -> dict[str, Any]:
    """What one round takes (0x07B-0x07D), one row, head, block and layer at a time.

    `multiply(i, o)` is a matrix `[o, i]` on one vector, two FLOPs a multiply-add.
    """
    packed = rows(workload.paths)
    d, vocabulary, prefix = workload.hidden, workload.vocabulary, workload.prefix
    found = dict.fromkeys(("head_parameters", "residual_flops", "projection_flops"), 0)
    head_rows = packed if workload.head_rows == "all" else packed[-1:]
    head_logits = lm_flops = scored = allowed = kv = 0
    for _ in range(workload.heads):
        for _ in range(workload.head_blocks):
            found["head_parameters"] += d * d + d
            found["residual_flops"] += sum(multiply(d, d) for _ in head_rows)
        if workload.projection == "independent":
            found["head_parameters"] += vocabulary * d
        found["projection_flops"] += sum(multiply(d, vocabulary) for _ in head_rows)
        head_logits += sum(vocabulary for _ in head_rows)
    for u in packed:
        lm_flops += multiply(d, vocabulary)
        scored += sum(1 for _ in (*range(prefix), *packed))
        allowed += sum(1 for _ in range(prefix)) + sum(u[: len(v)] == v for v in packed)
    for _ in range(workload.layers):
        for _ in ("key", "value"):
            for _ in range(workload.kv_heads):
                kv += d // workload.attention_heads * workload.scalar_bytes
    retrieved = tree(workload.paths, 1, "canonical", -1)["retrieve_indices"]
    found |= {
        "head_bytes": found["head_parameters"] * workload.scalar_bytes,
        "head_rows": len(head_rows),
        "lm_flops": lm_flops,
        "dense_pairs": scored,
        "allowed_pairs": allowed,
        "logit_elements": sum(vocabulary for _ in packed),
        "head_logit_elements": head_logits,
        "path_logit_elements": sum(vocabulary for row in retrieved for _ in row),
        "staged_bytes": sum(kv for _ in packed),
        "committed_bytes": sum(kv for _ in range(workload.published)),
    }
    return found if workload.profile is None else found | rates(workload.profile)


def multiply(inputs: int, outputs: int) -> int:
    """FLOPs of a matrix on a vector."""
    return 2 * inputs * outputs


def rates(profile: Any) -> dict[str, Any]:
    """What a profile says, exactly of the decimals that it was written in (0x07D)."""
    took = Fraction(repr(profile.round)) * profile.rounds
    plain = Fraction(repr(profile.baseline_step)) * profile.published
    return {
        "overhead": float(took / profile.rounds / Fraction(repr(profile.baseline_step))),
        # So many steps would have published as much.
        "speedup": float(plain / took),
        "breaks_even": plain > took,
    }


def claims(facts: Any) -> dict[str, Any]:
    """What each figure is called, which are of the run, and what each policy may be called."""
    origins = {figure.name: figure.origin for figure in facts.figures}

    def ends(name: str) -> list[str]:
        """The kinds of origin at the end of every way down the formulas, some of them again."""
        if origins[name]["kind"] != "computed":
            return [origins[name]["kind"]]
        return [kind for other in origins[name]["inputs"] for kind in ends(other)]

    words = ("computed", "derived"), ("made-up", "synthetic"), ("run", "measured")
    called = dict((*words, ("said", "source-reported")))
    claimed = {}
    never_exact = (
        *("typical", "fast-typical", "typical-per-path"),
        *("nucleus-per-path", "rejection-uncorrected"),
    )
    for law in facts.policies:
        if law.mode in never_exact or (law.distance or 0) > 0:
            claimed[law.mode] = "heuristic"
        elif law.distance == 0:
            claimed[law.mode] = "greedy-exact" if law.mode == "greedy" else "target-law"
        else:
            claimed[law.mode] = "unproven"
    return {
        "typed": {name: called[origin["kind"]] for name, origin in origins.items()},
        "local": [name for name in origins if ends(name) and {*ends(name)} <= {"run"}],
        "claimed": claimed,
    }


def frozen(coordinate: Any) -> dict[str, Any]:
    """Everything that the `expected` block of a coordinate's manifest may hold.

    Tokens are known where a ranking is given; a winner, where a posterior is, or where there is
    no edge to judge.
    """
    policy, prefix = coordinate.policy, coordinate.prefix_length
    buffers = tree(coordinate.paths, coordinate.topk, policy.retrieval_order, policy.sentinel)
    found: dict[str, Any] = dict(buffers)
    found["positions"] = [prefix + depth for depth in buffers["position_ids"]]
    found["staged_rows"] = [prefix + row for row in range(len(buffers["tree_indices"]))]
    if coordinate.search is not None:
        found["admitted"] = [list(decision["path"]) for decision in search(coordinate.search)]
    if coordinate.cost is not None:
        found["ledger"] = ledger(coordinate.cost)
    if coordinate.claims is not None:
        found |= claims(coordinate.claims)
    if coordinate.ranking is None:
        return found
    packed = packed_tokens(coordinate.paths, coordinate.ranking.root, coordinate.ranking.heads)
    retrieved = candidates(buffers["retrieve_indices"], packed, policy.sentinel)
    found |= {"packed_tokens": packed, "candidates": retrieved}
    if coordinate.paths and not coordinate.posterior:
        return found
    vocabulary = coordinate.model.vocabulary
    # A row that the manifest does not name is uniform.
    judged = {path: distribution({}, 1.0, vocabulary) for path in rows(coordinate.paths)}
    for row in coordinate.posterior:
        judged[row.path] = distribution(row.probabilities, row.rest, vocabulary)
    logits = path_logits(coordinate.paths, buffers["retrieve_indices"], judged)
    winners = {
        "greedy": greedy(retrieved, logits),
        "fast_typical": fast_typical(retrieved, logits, _typical(policy)),
    }
    for mode, (index, accepted) in winners.items():
        found[mode] = {
            "path": list(leaves(coordinate.paths, policy.retrieval_order)[index]),
            "accepted": accepted,
            "tokens": retrieved[index][: accepted + 1],
        }
    index, accepted = winners[policy.mode.replace("-", "_")]
    rows_of_winner = buffers["retrieve_indices"][index]
    end = coordinate.end_of_sequence
    found["commit"] = commit(prefix, rows_of_winner, retrieved[index], accepted, end)
    return found


def _typical(policy: Any) -> Any:
    # A greedy policy has temperature 0; what fast typical would do is told at temperature 1.
    return replace(policy, temperature=policy.temperature or 1.0)
