"""The catalog against what was asked for, against the registry, and against the engine."""

from __future__ import annotations

import inspect
from collections import Counter
from dataclasses import fields

import pytest

from medusa_mutations import Mutation, mutations
from medusa_mutations.catalog import STAGES
from medusa_reference_engine.engine import Stages
from medusa_spec.registry import CONTRACTS, invariants

# What the contracts ask for, before anything was added. "The reverse" of a projection that is
# shared for an independent one has a name here.
DEMANDED = {
    "coordinate": """
        rank-aliases-next-head duplicate-path missing-ancestor depth-beyond-heads
        prefix-length-off-by-one pin-mixes-legacy-and-current pin-hash-stale
        domain-alias-slot-row epsilon-alpha-swapped
    """,
    "heads": """
        head-offset-one head-order-swapped residual-dropped activation-replaced blocks-aliased
        projection-shared-for-independent projection-independent-for-shared projection-with-bias
        coverage-same-for-all-heads coverage-ignores-loss-mask head-conditions-on-candidate
    """,
    "tree": """
        position-from-row position-root-is-one sibling-visible causal-triangle-for-tree
        self-invisible root-invisible grandparent-invisible slot-without-root-offset slot-is-row
        slot-without-depth permute-only-tree-indices permute-only-mask permute-only-positions
        permute-only-retrieval second-sort-key retrieval-drops-leaf retrieval-has-inner-path
        retrieval-not-a-chain sentinel-is-zero sentinel-in-the-middle duplicate-tokens-merged
        cumulative-node-count
    """,
    "proposal": """
        root-from-head-zero topk-ascending heads-reversed gather-off-by-one
        padding-reads-last-row proposal-from-stale-frontier
    """,
    "verification": """
        verify-position-from-row position-misses-prefix prompt-key-hidden
        sibling-leak-in-rectangle self-aligned-logits two-rows-one-slot
        retrieval-not-parent-child mask-only-in-first-layer boolean-mask-added
        stale-mask-of-previous-tree mask-fill-underflows cache-row-as-rope-position
        past-length-off-by-one head-logits-from-root-row logits-slice-shifted
    """,
    "posterior": """
        max-for-min entropy-sign-flipped entropy-in-bits passes-counted-after-mismatch
        probability-sum-tie tie-over-all-positions greater-or-equal temperature-ignored
        last-maximal-path default-path-last root-counted-as-accepted padding-accepted
        nan-matches-token-zero exact-label-on-typical rejection-without-correction-state
    """,
    "commit": """
        commit-a-rows commit-contiguous-suffix tokens-p-cache-q frontier-of-predecessor
        frontier-of-other-path head-frontier-of-root length-before-validation aliased-copy
        keys-without-values first-layer-only destination-off-by-one prefix-row-overwritten
        rejected-rows-visible tokens-after-end-of-sequence staging-overflow
    """,
    "search": """
        cumulative-for-increment leaves-only orphan-admitted budget-off-by-one
        depth-reads-next-head sum-for-product frontier-not-extended
    """,
    "exactness": """
        temperature-for-roots-alone cut-for-roots-alone rejected-row-drawn-afresh
        path-draws-for-row-draws residual-missing residual-not-renormalised paths-share-a-draw
        fast-typical-called-target-law path-draws-called-target-law proposal-forgotten
        product-for-path-probability
    """,
    "training": """
        labels-offset-one mask-not-shifted mean-over-all-rows empty-head-divides
        weights-exponent-off backbone-gradient-in-medusa-1 lm-head-trains-in-medusa-1
        lm-term-missing kl-term-missing kl-reversed groups-equalised group-incomplete
        stage-order-swapped
    """,
    "checkpoint": """
        head-only-medusa-2 filename-mismatch hard-coded-head-count head-missing-loose-load
        shared-loaded-as-independent base-revision-absent aliased-blocks-saved dtype-silently-cast
    """,
    "cost": """
        head-projection-omitted shared-weights-cost-nothing mask-proves-sparsity paths-deduplicated
        commit-bytes-omitted rounds-for-tokens batch-claimed query-heads-for-kv-heads bits-for-bytes
        speedup-inverted
    """,
    "claims": """
        synthetic-labelled-measured source-figure-labelled-local typical-labelled-exact
        batch-support-claimed lineage-contract-swapped
    """,
}

WILD = """
    rank-aliases-next-head duplicate-path depth-beyond-heads epsilon-alpha-swapped blocks-aliased
    causal-triangle-for-tree proposal-from-stale-frontier boolean-mask-added
    stale-mask-of-previous-tree mask-fill-underflows cache-row-as-rope-position
    past-length-off-by-one logits-slice-shifted temperature-ignored padding-accepted
    nan-matches-token-zero rejected-rows-visible tokens-after-end-of-sequence staging-overflow
    gradients-accumulate group-incomplete hard-coded-head-count head-missing-loose-load
    aliased-blocks-saved unpickles-what-it-finds speedup-inverted
"""

# A corruption belongs to the contract that it breaks, which is not always where the engine does
# the work: the commit stage publishes a root and checks the room, the round stage prefills.
ELSEWHERE = {
    "rejection-publishes-nothing": "commit",
    "prefill-truncates-prompt": "round",
    "full-cache-refused": "commit",
}

EVERY = pytest.mark.parametrize("mutation", mutations().values(), ids=lambda m: m.id)


def replaced(mutation: Mutation) -> list[str]:
    """The fields of `Stages` in which a mutation's engine differs from the original."""
    ours, theirs = Stages(), mutation.stages()
    return [f.name for f in fields(Stages) if getattr(ours, f.name) is not getattr(theirs, f.name)]


@pytest.mark.parametrize("contract", DEMANDED)
def test_every_mutant_that_a_contract_asks_for_exists(contract: str) -> None:
    listed = {m.id for m in mutations().values() if m.contract == contract}
    demanded = DEMANDED[contract].split()
    assert len(demanded) == len(set(demanded))
    assert set(demanded) - listed == set()


def test_wild_is_what_was_met_in_the_wild() -> None:
    assert {m.id for m in mutations().values() if m.origin == "wild"} == set(WILD.split())


def test_every_invariant_has_a_mutant_and_every_mutant_an_invariant() -> None:
    assert {m.killer for m in mutations().values()} == set(invariants())


@EVERY
def test_a_mutant_belongs_to_the_contract_of_its_killer(mutation: Mutation) -> None:
    assert invariants()[mutation.killer].contract == mutation.contract
    assert mutation.stage.__module__ == f"medusa_mutations.{mutation.contract}"


@EVERY
def test_a_mutant_replaces_exactly_one_stage(mutation: Mutation) -> None:
    (name,) = replaced(mutation)
    assert name == ELSEWHERE.get(mutation.id, mutation.contract)
    assert getattr(mutation.stages(), name) is mutation.stage


@EVERY
def test_a_mutant_is_the_original_stage_but_for_what_it_overrides(mutation: Mutation) -> None:
    (original,) = (parent for parent in mutation.stage.__mro__ if parent in STAGES)
    assert mutation.stage is not original
    layers = mutation.stage.__mro__[: mutation.stage.__mro__.index(original)]
    overridden = {name for layer in layers for name in vars(layer) if hasattr(original, name)}
    methods = {name for name in overridden if inspect.isfunction(getattr(original, name))}
    assert methods
    for name in methods:
        ours = inspect.signature(getattr(original, name)).parameters
        assert [*inspect.signature(getattr(mutation.stage, name)).parameters] == [*ours]


def test_no_two_mutants_share_a_stage_or_a_sentence() -> None:
    stages = Counter(m.stage for m in mutations().values())
    sentences = Counter(m.sentence for m in mutations().values())
    assert set(stages.values()) == set(sentences.values()) == {1}


def test_mutants_stand_in_the_order_of_the_contracts() -> None:
    contracts = [m.contract for m in mutations().values()]
    assert contracts == sorted(contracts, key=CONTRACTS.index)
