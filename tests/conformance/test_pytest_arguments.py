"""Arguments of `parametrize_with_invariants` that lead nowhere: one error, before any case."""

from __future__ import annotations

from typing import Any

import pytest

from medusa_conformance.pytest_plugin import parametrize_with_invariants

# A module that is there; nothing of it is imported.
ENGINE = "json:Engine"


def test_lawful_arguments_give_cases() -> None:
    mark: Any = parametrize_with_invariants(ENGINE, timeout=1, contracts={"tree"})
    cases = [parameter.id for parameter in mark.args[1]]
    assert cases[-1] == "VERDICT"
    assert all(code.startswith("TREE.") for code in cases[:-1])


@pytest.mark.parametrize(
    ("engine", "given", "said"),
    [
        ("json", {}, "'json' is not module:attribute"),
        (dict, {}, "<class 'dict'> is no string"),
        (ENGINE, {"timeout": "x"}, "timeout='x' is no number from 0.1 to 3600"),
        (ENGINE, {"timeout": 0}, "timeout=0 is no number from 0.1 to 3600"),
        (ENGINE, {"timeout": float("nan")}, "timeout=nan is no number from 0.1 to 3600"),
        (ENGINE, {"max_examples": 0}, "max_examples=0 is no number from 1 to 100000"),
        (ENGINE, {"seed": -1}, "seed=-1 is no number from 0 to 4294967295"),
        (ENGINE, {"seed": 0.5}, "seed=0.5 is no number from 0 to 4294967295"),
        (ENGINE, {"contracts": "tree"}, "contracts='tree' is no list of contracts; there are coo"),
        (ENGINE, {"contracts": ["typo"]}, "contracts=['typo'] is no list of contracts"),
        (ENGINE, {"contracts": [["tree"]]}, "contracts=[['tree']] is no list of contracts"),
        (ENGINE, {"contracts": []}, "contracts=[] is no list of contracts"),
        (ENGINE, {"contracts": 3}, "contracts=3 is no list of contracts"),
    ],
)
def test_arguments_that_lead_nowhere_are_one_error(engine: Any, given: Any, said: str) -> None:
    with pytest.raises(pytest.Collector.CollectError) as refused:
        parametrize_with_invariants(engine, **given)
    assert str(refused.value).startswith(f"parametrize_with_invariants: {said}")
