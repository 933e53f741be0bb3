"""The rules of a coordinate document that a schema cannot say (chapter `spec/coordinate.md`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from math import inf, prod
from typing import Any, NamedTuple


class Violation(NamedTuple):
    """One broken rule: the invariant, the field that breaks it, and how."""

    code: str
    field: str
    rule: str


LEAST_TEMPERATURE = 0.1
"""Below it the powers of a table's weights are beyond what a float holds well."""

LEGACY_ONLY = frozenset({"medusa/model/medusa_model_legacy.py", "medusa/train/train_legacy.py"})
CURRENT_ONLY = frozenset({"medusa/model/medusa_model.py"})


def path_violations(
    paths: Sequence[Sequence[int]], topk: int, heads: int, field: str = "paths"
) -> Iterator[Violation]:
    """Clauses C4 to C7, in the order of the list; the list itself may have any order."""
    known: set[tuple[int, ...]] = set()
    everything = {tuple(path) for path in paths}
    for index, listed in enumerate(paths):
        path = tuple(listed)
        place = f"{field}[{index}]"
        shown = list(path)
        for rank in path:
            if not 0 <= rank < topk:
                rule = f"rank {rank} of {shown} is outside [0, TOPK={topk})"
                yield Violation("COORDINATE.RANK_BELOW_TOPK", place, rule)
        if len(path) > heads:
            rule = f"{shown} has depth {len(path)}, and there are {heads} heads"
            yield Violation("COORDINATE.DEPTH_WITHIN_HEADS", place, rule)
        if path in known:
            yield Violation("COORDINATE.PATHS_DISTINCT", place, f"{shown} occurs twice")
        if len(path) > 1 and path[:-1] not in everything:
            rule = f"{shown} has no ancestor {list(path[:-1])}"
            yield Violation("COORDINATE.PREFIX_CLOSED", place, rule)
        known.add(path)


def source_violations(
    source: Mapping[str, Any], pin: Mapping[str, Any], field: str = "source"
) -> Iterator[Violation]:
    """Clause C2: the pin's own identity and hashes, and one code path through it."""
    code = "COORDINATE.SOURCE_PIN"
    for key in ("repository", "commit"):
        if source[key] != pin[key]:
            rule = f"{source[key]} is not the pinned {pin[key]}"
            yield Violation(code, f"{field}.{key}", rule)
    foreign = LEGACY_ONLY if source["variant"] == "current" else CURRENT_ONLY
    for name, digest in source["files"].items():
        place = f"{field}.files[{name}]"
        if name not in pin["files"]:
            yield Violation(code, place, "is not a pinned file")
        elif digest != pin["files"][name]:
            rule = f"SHA-256 {digest[:12]}… is not the pinned {pin['files'][name][:12]}…"
            yield Violation(code, place, rule)
        if name in foreign:
            yield Violation(code, place, f"does not belong to the {source['variant']} variant")


def violations(document: Mapping[str, Any], pin: Mapping[str, Any]) -> Iterator[Violation]:
    """Every rule that a schema-valid coordinate document breaks, clauses C2 to C11."""
    yield from source_violations(document["source"], pin)
    prefix, vocabulary = document["prefix"], document["model"]["vocabulary"]
    if document["prefix_length"] != len(prefix):
        rule = f"is {document['prefix_length']}, and the prefix has {len(prefix)} tokens"
        yield Violation("COORDINATE.PREFIX_LENGTH", "prefix_length", rule)
    topk, heads = document["topk"], document["heads"]
    yield from path_violations(document["paths"], topk, heads)
    earlier = document.get("earlier")
    if earlier is not None:
        yield from path_violations(earlier["paths"], topk, heads, "earlier.paths")
    for owner, tree in (("", document), ("earlier.", earlier)):
        if tree is not None:
            yield from _capacity(tree, document["capacity"], owner)
            yield from _tokens(tree["prefix"], vocabulary, f"{owner}prefix")
    if topk > vocabulary:
        rule = f"is {topk}, and the vocabulary has {vocabulary} tokens to rank"
        yield Violation("COORDINATE.TOKEN_DOMAIN", "topk", rule)
    ranking, training = document.get("ranking"), document.get("training")
    if ranking is not None:
        yield from _ranking(ranking, topk, heads, vocabulary)
    if training is not None:
        for index, row in enumerate(training["tokens"]):
            yield from _tokens(row, vocabulary, f"training.tokens[{index}]")


def _capacity(tree: Mapping[str, Any], capacity: int, owner: str) -> Iterator[Violation]:
    needed = len(tree["prefix"]) + len(tree["paths"]) + 1
    if needed > capacity:
        rule = f"{needed} rows for {owner}prefix and tree exceed the cache of {capacity}"
        yield Violation("COORDINATE.CAPACITY", "capacity", rule)


def _tokens(tokens: Sequence[int], vocabulary: int, field: str) -> Iterator[Violation]:
    for index, token in enumerate(tokens):
        if not 0 <= token < vocabulary:
            rule = f"token {token} is outside the vocabulary of {vocabulary}"
            yield Violation("COORDINATE.TOKEN_DOMAIN", f"{field}[{index}]", rule)


def _ranking(
    ranking: Mapping[str, Any], topk: int, heads: int, vocabulary: int
) -> Iterator[Violation]:
    code = "COORDINATE.TOKEN_DOMAIN"
    yield from _tokens([ranking["root"]], vocabulary, "ranking.root")
    if len(ranking["heads"]) != heads:
        rule = f"ranks {len(ranking['heads'])} heads of {heads}"
        yield Violation(code, "ranking.heads", rule)
    for index, ranked in enumerate(ranking["heads"]):
        field = f"ranking.heads[{index}]"
        yield from _tokens(ranked, vocabulary, field)
        if len(ranked) != topk or len(set(ranked)) != topk:
            yield Violation(code, field, f"needs TOPK={topk} different tokens")


class Inconsistency(NamedTuple):
    """Two fields of a document that cannot both hold; no decoding rule, and so without a code."""

    field: str
    rule: str


def inconsistencies(document: Mapping[str, Any]) -> Iterator[Inconsistency]:
    """Where the parts of a coordinate document that breaks no rule do not fit each other.

    Without them an engine would fail in the middle of a round, and be blamed for it.
    """
    tree = {(), *map(tuple, document["paths"])}
    vocabulary, end = document["model"]["vocabulary"], document["end_of_sequence"]
    if end is not None and end >= vocabulary:
        rule = f"token {end} is outside the vocabulary of {vocabulary}"
        yield Inconsistency("end_of_sequence", rule)
    yield from _model(document["model"], "model")
    for index, planned in enumerate(document["rounds"]):
        if planned is not None:
            field = f"rounds[{index}]"
            yield from _member(planned["path"], tree, field)
            if planned["edges"] > len(planned["path"]):
                rule = f"is {planned['edges']}, and the path has {len(planned['path'])}"
                yield Inconsistency(f"{field}.edges", rule)
    yield from _posterior(document.get("posterior", ()), tree, vocabulary)
    branching = document.get("branching")
    if branching is not None:
        widths = [sum(len(path) == depth for path in tree) for depth in range(len(branching) + 1)]
        products = [prod(branching[:depth]) for depth in range(len(branching) + 1)]
        if widths != products or len(tree) != sum(products):
            yield Inconsistency("branching", f"is {branching}, and the paths branch otherwise")
    if "search" in document:
        yield from _search(document["search"], document["heads"], document["topk"])
    if "exactness" in document:
        yield from _exactness(document["exactness"])
    if "training" in document:
        yield from _training(document["training"], document["heads"])
    if "release" in document:
        yield from _release(document["release"], document.get("training"), document["heads"])
    if "cost" in document:
        yield from _cost(document["cost"])
    if "claims" in document:
        yield from _claims(document["claims"])
    if "expected" in document:
        yield from _frozen(document["expected"], len(tree))


def _member(path: Sequence[int], tree: set[tuple[int, ...]], field: str) -> Iterator[Inconsistency]:
    if tuple(path) not in tree:
        yield Inconsistency(f"{field}.path", f"{list(path)} is not a path of the tree")


def _model(model: Mapping[str, Any], field: str) -> Iterator[Inconsistency]:
    hidden, heads, kv_heads = model["hidden"], model["attention_heads"], model["kv_heads"]
    if hidden % (2 * heads):
        rule = f"is {hidden}; rotary pairs need a multiple of twice the {heads} attention heads"
        yield Inconsistency(f"{field}.hidden", rule)
    if heads % kv_heads:
        rule = f"is {kv_heads}, which does not divide the {heads} attention heads"
        yield Inconsistency(f"{field}.kv_heads", rule)


def _posterior(
    rows: Sequence[Mapping[str, Any]], tree: set[tuple[int, ...]], vocabulary: int
) -> Iterator[Inconsistency]:
    known: set[tuple[int, ...]] = set()
    for index, row in enumerate(rows):
        field, named = f"posterior[{index}]", row["probabilities"]
        yield from _member(row["path"], tree, field)
        if tuple(row["path"]) in known:
            yield Inconsistency(f"{field}.path", f"{row['path']} occurs twice")
        known.add(tuple(row["path"]))
        for token in named:
            if int(token) >= vocabulary:
                rule = f"token {token} is outside the vocabulary of {vocabulary}"
                yield Inconsistency(f"{field}.probabilities", rule)
        if len(named) >= vocabulary:
            yield Inconsistency(f"{field}.rest", "has no other token to be spread over")
        total = sum(named.values()) + row["rest"]
        if abs(total - 1) > 1e-9:
            yield Inconsistency(field, f"adds up to {total:.9g}, and not to 1")


def _search(search: Mapping[str, Any], heads: int, topk: int) -> Iterator[Inconsistency]:
    accuracy = search["accuracy"]
    if len(accuracy) != heads:
        rule = f"is of {len(accuracy)} heads, and there are {heads}"
        yield Inconsistency("search.accuracy", rule)
    yield from accuracy_inconsistencies(search["form"], accuracy, "search.accuracy")
    for what, ranks in (("the table has", min(map(len, accuracy))), ("TOPK is", topk)):
        if search["max_rank"] > ranks:
            rule = f"asks for {search['max_rank']} ranks a head, and {what} {ranks}"
            yield Inconsistency("search.max_rank", rule)


def accuracy_inconsistencies(
    form: str, accuracy: Sequence[Sequence[float]], field: str
) -> Iterator[Inconsistency]:
    """Where numbers between 0 and 1 are no accuracies: a row that is short, falls, or exceeds 1."""
    for head, row in enumerate(accuracy):
        place = f"{field}[{head}]"
        if len(row) != len(accuracy[0]):
            rule = f"has {len(row)} ranks, and the first head has {len(accuracy[0])}"
            yield Inconsistency(place, rule)
        if form == "incremental" and sum(row) > 1 + 1e-9:
            rule = f"adds up to {sum(row):.9g}, and only one rank of a head can match"
            yield Inconsistency(place, rule)
        for rank, (before, after) in enumerate(pairwise(row), 1):
            if form == "cumulative" and after < before:
                rule = f"falls from {before:g} to {after:g}; more ranks never match less often"
                yield Inconsistency(f"{place}[{rank}]", rule)


def _claims(facts: Mapping[str, Any]) -> Iterator[Inconsistency]:
    for listed, key in (("figures", "name"), ("policies", "mode")):
        names = [entry[key] for entry in facts[listed]]
        for index, name in enumerate(names):
            if name in names[:index]:
                yield Inconsistency(f"claims.{listed}[{index}].{key}", f"{name} is there already")
    known: set[str] = set()
    for index, figure in enumerate(facts["figures"]):
        # Behind its inputs, so that no figure is computed of itself.
        for name in figure["origin"].get("inputs", ()):
            if name not in known:
                field = f"claims.figures[{index}].origin.inputs"
                yield Inconsistency(field, f"{name} is no figure before this one")
        known.add(figure["name"])


def _exactness(exactness: Mapping[str, Any]) -> Iterator[Inconsistency]:
    vocabulary, drafts = len(exactness["model"][0]), exactness["drafts"]
    tables = {"model": exactness["model"]}
    tables |= {f"drafts[{head}]": rows for head, rows in enumerate(drafts)}
    for name, rows in tables.items():
        field = f"exactness.{name}"
        if len(rows) != 1 + vocabulary:
            rule = f"has {len(rows)} rows; a start and {vocabulary} tokens need {1 + vocabulary}"
            yield Inconsistency(field, rule)
        for index, row in enumerate(rows):
            if len(row) != vocabulary:
                rule = f"weighs {len(row)} tokens of {vocabulary}"
                yield Inconsistency(f"{field}[{index}]", rule)
            if not any(row):
                yield Inconsistency(f"{field}[{index}]", "weighs nothing")
    paths, sampling = exactness["paths"], exactness["sampling"]
    for violation in path_violations(paths, vocabulary, len(drafts), "exactness.paths"):
        yield Inconsistency(violation.field, violation.rule)
    mode, temperature = sampling["mode"], sampling["temperature"]
    if (temperature == 0) != (mode == "greedy"):
        rule = f"is {temperature:g}, and 0 is for greedy alone"
        yield Inconsistency("exactness.sampling.temperature", rule)
    if temperature and temperature < LEAST_TEMPERATURE:
        rule = f"is {temperature:g}; above 0 the least is {LEAST_TEMPERATURE:g}"
        yield Inconsistency("exactness.sampling.temperature", rule)
    if mode.startswith("rejection") and any(any(path) for path in paths):
        rule = f"branch, and {mode} draws one chain: each path has ranks 0 alone"
        yield Inconsistency("exactness.paths", rule)


def _training(training: Mapping[str, Any], heads: int) -> Iterator[Inconsistency]:
    shapes = {name: list(map(len, training[name])) for name in ("tokens", "owned")}
    if len(set(shapes["tokens"])) > 1:
        yield Inconsistency("training.tokens", f"has rows of {shapes['tokens']} tokens")
    if shapes["owned"] != shapes["tokens"]:
        rule = f"has rows of {shapes['owned']} entries for {shapes['tokens']} tokens"
        yield Inconsistency("training.owned", rule)
    if len(training["head_weights"]) != heads:
        rule = f"weighs {len(training['head_weights'])} heads of {heads}"
        yield Inconsistency("training.head_weights", rule)
    if training["backbone_rate"] >= training["head_rate"]:
        rule = f"is {training['backbone_rate']:g}, not below the heads' {training['head_rate']:g}"
        yield Inconsistency("training.backbone_rate", rule)
    if training["warm_up"] > training["steps"]:
        rule = f"is {training['warm_up']} of {training['steps']} steps"
        yield Inconsistency("training.warm_up", rule)


def _release(
    release: Mapping[str, Any], training: Mapping[str, Any] | None, heads: int
) -> Iterator[Inconsistency]:
    if heads == 0:
        yield Inconsistency("release", "is of no heads")
    trained = "medusa-1" if training is None else training["variant"]
    if release["variant"] != trained:
        rule = f"is {release['variant']}, and the heads are those of {trained}"
        yield Inconsistency("release.variant", rule)


def _cost(cost: Mapping[str, Any]) -> Iterator[Inconsistency]:
    yield from _model(cost, "cost")
    # What is counted has no ranks to fit, so any are there that its tree names.
    ranks = 1 + max((rank for path in cost["paths"] for rank in path), default=0)
    for violation in path_violations(cost["paths"], ranks, cost["heads"], "cost.paths"):
        yield Inconsistency(violation.field, violation.rule)
    most = 1 + max(map(len, cost["paths"]), default=0)
    if cost["published"] > most:
        rule = f"is {cost['published']}, and the longest path publishes {most}"
        yield Inconsistency("cost.published", rule)
    profile = cost["profile"]
    if profile is None:
        return
    least, rounds = profile["rounds"], profile["rounds"]
    if not least <= profile["published"] <= most * rounds:
        rule = f"is {profile['published']}; {rounds} rounds publish {least} to {most * rounds}"
        yield Inconsistency("cost.profile.published", rule)
    # Each cost is a number above 0, and their quotient may be none: too great, or too small.
    overhead = profile["round"] / profile["baseline_step"]
    speedup = profile["published"] / rounds / overhead if overhead else inf
    if not 0 < overhead < inf or not 0 < speedup < inf:
        rule = (
            f"is {profile['round']:g}, and a baseline step {profile['baseline_step']:g}:"
            " their quotient is no number that a float holds"
        )
        yield Inconsistency("cost.profile.round", rule)


def _frozen(expected: Mapping[str, Any], nodes: int) -> Iterator[Inconsistency]:
    per_row = ("tree_indices", "position_ids", "parents", "positions", "staged_rows")
    for name in (*per_row, "packed_tokens", "attention_mask"):
        found = len(expected.get(name, range(nodes)))
        if found != nodes:
            yield Inconsistency(f"expected.{name}", f"has {found} entries for {nodes} rows")
    for name in ("attention_mask", "retrieve_indices", "candidates"):
        widths = {len(row) for row in expected.get(name, ())}
        if len(widths) > 1 or (name == "attention_mask" and widths != {nodes}):
            yield Inconsistency(f"expected.{name}", f"has rows of {sorted(widths)} entries")
