"""What a checkpoint says of itself, word by word, and what the heads that it gave hold."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from medusa_oracles import judge
from medusa_oracles.checkpoint import derive_identity
from medusa_spec.registry import of_contract
from medusa_spec.stages import IDENTITY

A = {invariant.clause: invariant.code for invariant in of_contract("checkpoint")}

ELSEWHERE = {"heads": "A2", "projection": "A5"}
"""Words of the identity that have a clause of their own."""


class TestIdentity:
    def test_it_is_derived(self, saved: Any) -> None:
        heads = saved("self-distilled", "shared").coordinate
        assert derive_identity(heads, "float16") == {
            "base": "example/base",
            "base_revision": "5a0f9c31",
            "tokenizer": "example/base@5a0f9c31",
            "variant": "self-distilled",
            "heads": 3,
            "blocks": 2,
            "projection": "shared",
            "offset": 2,
            "dtype": "float16",
        }
        with pytest.raises(ValueError, match="by-hand has no release"):
            derive_identity(replace(heads, release=None), "float16")

    @pytest.mark.parametrize("word", IDENTITY)
    def test_each_word_is_named(self, word: str, saved: Any, by: Any) -> None:
        trace, code = saved(), A[ELSEWHERE.get(word, "A1")]
        fields = {w: key for w, key in trace["checkpoint.saved"]["fields"].items() if w != word}
        assert by.codes(trace, saved=by.saved_with(trace, fields=fields)) == {code}
        for value in (by.ABSENT, None):
            assert by.codes(trace, config=by.config_with(trace, word, value)) == {code}
        words = {w: v for w, v in trace["checkpoint.identity"].items() if w != word}
        assert by.codes(trace, identity=words) == {code}

    @pytest.mark.parametrize("word", IDENTITY)
    def test_each_has_its_value(self, word: str, saved: Any, by: Any) -> None:
        trace, code = saved(), A[ELSEWHERE.get(word, "A1")]
        for other in ("another", 7, True, [], {"of": word}):
            assert by.codes(trace, config=by.config_with(trace, word, other)) == {code}
            words = trace["checkpoint.identity"] | {word: other}
            assert by.codes(trace, identity=words) == {code}

    def test_a_truth_value_is_no_number(self, saved: Any, by: Any) -> None:
        trace = saved()
        model = replace(trace.coordinate.model, head_blocks=1)
        one = replace(trace, coordinate=replace(trace.coordinate, model=model))
        words = trace["checkpoint.identity"] | {"blocks": 1}
        for said, found in ((1, set()), (True, {A["A1"]})):
            config = by.config_with(trace, "blocks", said)
            assert by.codes(one, config=config, identity=words) == found

    def test_a_config_that_is_no_object_names_nothing(self, saved: Any, by: Any) -> None:
        for config in (None, [], "base", {"medusa": 3}):
            assert by.codes(saved(), config=config) == {A["A1"], A["A2"], A["A5"]}

    @pytest.mark.parametrize(
        ("dtype", "named"),
        [
            ("F32", "torch.float32"),
            ("BF16", "torch.bfloat16"),
            ("BF16", "bfloat16"),
            ("F16", "float16"),
            ("F64", "torch.float64"),
        ],
    )
    def test_a_dtype_is_named_with_its_library_or_without(
        self, dtype: str, named: str, saved: Any, by: Any
    ) -> None:
        assert by.executed(saved(dtype=dtype, named=named)) >= {A["A1"]}
        assert by.codes(saved(dtype=dtype, named="torch.float8_e5m2")) == {A["A1"]}

    def test_a_dtype_is_that_of_the_heads_files(self, saved: Any, by: Any) -> None:
        # Of a backbone in another dtype it says nothing, nor of what is no float.
        trace = saved("medusa-2", dtype="F16", named="float16")
        assert {e["dtype"] for e in trace["checkpoint.stored"]} == {"F16", "F64"}
        assert by.executed(trace) >= {A["A1"]}
        counter = trace["checkpoint.stored"][0] | {"tensor": "steps", "dtype": "I64"}
        both = [*trace["checkpoint.stored"], counter]
        assert by.codes(trace, stored=both, restored=both) == set()
        one = [both[0] | {"dtype": "F32"}, *both[1:]]
        assert by.codes(trace, stored=one, restored=one) == {A["A1"]}

    def test_where_no_file_can_be_looked_into_any_float_will_do(self, saved: Any, by: Any) -> None:
        for named in ("bfloat16", "torch.float16", "float64"):
            trace = by.changed(
                saved(named=named), {"checkpoint.stored": [], "checkpoint.restored": []}
            )
            assert by.executed(trace) >= {A["A1"], A["A7"]}
            assert A["A1"] in by.executed(trace, "stored", "restored")
        assert by.codes(trace, config=by.config_with(trace, "dtype", "int8")) == {A["A1"]}
        assert by.codes(trace, config=by.config_with(trace, "dtype", "F32")) == {A["A1"]}

    def test_an_identity_need_not_be_shown(self, saved: Any, by: Any) -> None:
        assert by.executed(saved(), "identity") == by.executed(saved())

    def test_a_finding_names_the_word_and_the_place(self, saved: Any, by: Any) -> None:
        trace = saved()
        config = by.config_with(trace, "offset", 1)
        words = {w: v for w, v in trace["checkpoint.identity"].items() if w != "offset"}
        changes = {"checkpoint.config": config, "checkpoint.identity": words}
        found = judge(by.changed(trace, changes)).findings
        assert [(f.message, f.expected, f.observed) for f in found] == [
            ("the config names another offset", 2, 1),
            ("the identity that was read names no offset", 2, None),
        ]


class TestHeads:
    def test_as_many_are_loaded(self, saved: Any, by: Any) -> None:
        trace = saved()
        fewer = {
            name.removeprefix("checkpoint."): array[:2]
            for name, array in trace.arrays.items()
            if ".loaded." in name and "lm_head" not in name
        }
        # What is not there is not what was saved, either.
        assert by.codes(trace, **fewer) == {A["A2"], A["A7"]}
        held = {name.replace("loaded", "held"): array for name, array in fewer.items()}
        assert by.codes(trace, **fewer, **held) == {A["A2"]}
        alone = {"loaded.bias": fewer["loaded.bias"], **by.names_of("loaded.weight")}
        assert by.codes(trace, **alone) == {A["A2"], A["A7"]}

    def test_a_projection_is_held_where_each_head_has_its_own(self, saved: Any, by: Any) -> None:
        own, shared = saved(), saved(projection="shared")
        assert by.codes(own, **by.names_of("loaded.projection")) == {A["A5"]}
        # Of a state that lacks more, that one is not shown says nothing.
        for part in ("weight", "bias", "lm_head"):
            absent = by.names_of("loaded.projection", f"loaded.{part}")
            assert by.codes(own, **absent) == set()
        more = np.zeros((3, 48, 8))
        assert by.codes(shared, **{"loaded.projection": more}) == {A["A5"]}
        assert by.codes(shared, config=by.config_with(shared, "projection", "independent")) == {
            A["A5"]
        }
