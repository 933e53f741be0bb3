"""A finding as a document: all that a person reads of it, and all that replays it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from medusa_conformance.folding import Cause
from medusa_conformance.runner import Located, Setting
from medusa_conformance.tree_text import draw_tree
from medusa_conformance.versions import versions
from medusa_spec.documents import validate
from medusa_spec.errors import one_line
from medusa_spec.findings import Difference
from medusa_spec.registry import invariants

FORMAT = "medusa-finding/1"

LONGEST = 2000
"""Characters that are kept of a text of an engine's, and of the form of what JSON does not have."""


def finding_documents(
    causes: Sequence[Cause], target: Mapping[str, Any], setting: Setting, seed: int
) -> list[dict[str, Any]]:
    """The documents of one run, numbered from one in the order of its causes.

    `target` says what was judged, as `finding.schema.json` describes it; of several trace files,
    a finding names its own.
    """
    return [
        finding_document(cause, number, target, setting, seed)
        for number, cause in enumerate(causes, 1)
    ]


def finding_document(
    cause: Cause, number: int, target: Mapping[str, Any], setting: Setting, seed: int
) -> dict[str, Any]:
    """One cause with its least example and what follows from it, held to its schema."""
    located, finding = cause.located, cause.located.finding
    invariant = invariants()[finding.code]
    document = {
        "format": FORMAT,
        "code": finding.code,
        "contract": invariant.contract,
        "clause": invariant.clause,
        "chapter": invariant.chapter,
        "section": invariant.section,
        "message": plain(finding.message),
        "where": dict(finding.where),
        "expected": plain(finding.expected),
        "observed": plain(finding.observed),
        "difference": _difference(finding.difference),
        "usual_cause": invariant.cause,
        "tree": draw_tree(located),
        "follows": [{"code": code, "findings": count} for code, count in cause.follows.items()],
        "coordinate": located.coordinate.document(),
        "generation": located.generation,
        "round": located.round,
        "found_on": cause.coordinates,
        "reproduced": cause.reproduced,
        "target": _target(located, target),
        "dtype": setting.dtype,
        "device": setting.device,
        "seed": seed,
        "replay": f"medusa-oracles replay findings/{file_name(number, finding.code)}",
        "versions": versions(),
    }
    validate(document, "finding", f"finding {number}")
    return document


def _target(located: Located, target: Mapping[str, Any]) -> dict[str, Any]:
    if located.file is None:
        return dict(target)
    return {"kind": "trace", "path": str(located.file.resolve())}


def file_name(number: int, code: str) -> str:
    """The name of a finding's file in the folder `findings` of a report."""
    return f"{number:02}-{code}.json"


def _difference(difference: Difference | None) -> dict[str, Any] | None:
    if difference is None:
        return None
    return {
        "greatest": plain(difference.greatest),
        "where": dict(difference.where),
        "allowed": plain(difference.allowed),
        "entries": difference.entries,
        "of": difference.of,
    }


def plain(value: Any) -> Any:
    """A value of a finding as JSON has it; an engine may have answered with anything."""
    if isinstance(value, np.generic | np.ndarray):
        value = value.tolist()
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, Mapping):
        return {plain(str(key)): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    text = value if isinstance(value, str) else repr(value)
    # Half a character is no text that a file could hold.
    return one_line(text[:LONGEST])
