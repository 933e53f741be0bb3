"""What every folder of tests may ask for."""

from __future__ import annotations

import doctest
import importlib.util
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import medusa_manifests
from medusa_oracles import judge, oracles
from medusa_spec import Coordinate, Policy, Trace, canonical_order, source_pin
from medusa_spec.arrays import RankPath
from medusa_spec.coordinate import ModelShape, Source
from medusa_spec.findings import AXES


@pytest.fixture(scope="session")
def literal() -> ModuleType:
    """The literal formulas; test folders are no packages, so the module is loaded by its path."""
    return _module("literal_formula")


@pytest.fixture(scope="session")
def literal_law() -> ModuleType:
    """The same for output laws."""
    return _module("literal_law")


@pytest.fixture
def skip_broken_documents(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Show broken documents to admission alone, which alone reads them: they take half the time."""

    def skip(contract: str) -> None:
        if contract != "coordinate":
            monkeypatch.setattr("medusa_conformance.line.unlawful_documents", lambda document: ())

    return skip


@pytest.fixture(scope="session")
def frozen_by_three_roads(
    literal: ModuleType, literal_law: ModuleType
) -> Callable[[str, tuple[str, ...]], None]:
    """Prove that three roads which share no derivation lead to a manifest's frozen values."""
    roads = _module("roads")

    @cache
    def walked(name: str) -> Mapping[str, Mapping[str, Any]]:
        given = medusa_manifests.load(name)
        return {
            "literal formula": literal.frozen(given) | literal_law.frozen(given),
            "oracle": roads.oracle(given),
            "reference engine": roads.engine(given),
        }

    def prove(name: str, fields: tuple[str, ...]) -> None:
        expected = medusa_manifests.load(name).expected
        frozen = [field for field in fields if field in expected]
        assert frozen
        for road, found in walked(name).items():
            for field in frozen:
                assert found[field] == expected[field], f"{field} by the {road}"

    return prove


NINE_ROWS = ((0,), (1,), (0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2))


@pytest.fixture(scope="session")
def coordinate() -> Callable[..., Coordinate]:
    """A builder of lawful coordinates: nine rows behind five tokens, greedy unless told so."""

    def build(
        paths: tuple[RankPath, ...] = NINE_ROWS, mode: str = "greedy", **changes: Any
    ) -> Coordinate:
        pin = source_pin()
        typical = mode == "fast-typical"
        files = {name: pin["files"][name] for name in ("medusa/model/utils.py",)}
        policy = Policy(
            mode=mode,
            temperature=0.7 if typical else 0.0,
            epsilon=0.09,
            alpha=0.3,
            top_p=0.8,
            entropy_guard=1e-5,
            comparison=">",
            tie_rule="greatest-likelihood" if typical else "first-maximal-path",
            retrieval_order=changes.pop("retrieval_order", "canonical"),
            sentinel=changes.pop("sentinel", -1),
            seed=0,
        )
        model = ModelShape(
            layers=2,
            hidden=8,
            attention_heads=2,
            kv_heads=1,
            intermediate=16,
            vocabulary=48,
            rope_theta=10000.0,
            rms_epsilon=1e-5,
            head_blocks=2,
            projection=changes.pop("projection", "independent"),
            weight_seed=0,
        )
        given = Coordinate(
            name="by-hand",
            source=Source(pin["repository"], pin["commit"], "current", files),
            prefix=(41, 42, 43, 44, 45),
            prefix_length=5,
            topk=3,
            heads=max(map(len, paths), default=1),
            paths=canonical_order(paths),
            policy=policy,
            capacity=32,
            end_of_sequence=None,
            model=model,
        )
        return replace(given, **changes)

    return build


@pytest.fixture(scope="session")
def lawful_trace() -> Callable[..., Trace]:
    """The builder of `lawful_trace.py`: one whole round that keeps every rule."""
    build: Callable[..., Trace] = _module("lawful_trace").lawful_trace
    return build


@pytest.fixture(scope="session")
def prove() -> Callable[[str, Trace, Mapping[str, Any]], None]:
    """Prove one oracle: silent on a lawful trace, heard on a corrupted one, idle where blind."""

    def one(code: str, lawful: Trace, corruption: Mapping[str, Any]) -> None:
        clean = judge(lawful)
        assert code in clean.executed
        assert clean.findings == ()
        dirty = judge(_changed(lawful, corruption))
        assert code in dirty.executed
        heard = [finding for finding in dirty.findings if finding.code == code]
        assert heard
        assert all(type(index) is int for finding in heard for index in finding.where.values())
        assert all(set(finding.where) <= set(AXES) for finding in heard)
        assert all(str(finding).startswith(code) for finding in heard)
        entry = oracles()[code]
        for name in set(entry.needs) & set(entry.instead or entry.needs):
            assert code not in judge(_without(lawful, name)).executed

    return one


@pytest.fixture(scope="session")
def fired() -> Callable[[Trace, Mapping[str, Any]], set[str]]:
    """The codes that a trace breaks once `changes` have replaced what they name."""

    def codes(lawful: Trace, changes: Mapping[str, Any]) -> set[str]:
        return {finding.code for finding in judge(_changed(lawful, changes)).findings}

    return codes


@pytest.fixture(scope="session")
def run_chapter() -> Callable[[str], doctest.TestResults]:
    """Execute the worked examples of `spec/<contract>.md`; the report of a failure is printed."""

    def run(contract: str) -> doctest.TestResults:
        path = Path(__file__).parents[1] / "spec" / f"{contract}.md"
        # A fence is no output: left in, it would be compared with what the example prints.
        lines = path.read_text("utf-8").splitlines()
        text = "\n".join("" if line.startswith("```") else line for line in lines)
        examples = doctest.DocTestParser().get_doctest(text, {}, path.name, str(path), 0)
        runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
        runner.run(examples)
        return runner.summarize(verbose=False)

    return run


@pytest.fixture(scope="session")
def module() -> Callable[[str], ModuleType]:
    """What loads a module of this folder, which is no package, by its name."""
    return _module


def _module(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _changed(trace: Trace, changes: Mapping[str, Any]) -> Trace:
    arrays, documents = dict(trace.arrays), dict(trace.documents)
    for name, value in changes.items():
        is_array = name in arrays or isinstance(value, np.ndarray)
        (arrays if is_array else documents)[name] = value
    return replace(trace, arrays=arrays, documents=documents)


def _without(trace: Trace, absent: str) -> Trace:
    arrays = {name: value for name, value in trace.arrays.items() if name != absent}
    documents = {name: value for name, value in trace.documents.items() if name != absent}
    return replace(trace, arrays=arrays, documents=documents)
