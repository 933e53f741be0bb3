"""What a person sees: every width has whole lines, a pipe has plain ones, trouble has a name."""

from __future__ import annotations

import io
import re
from typing import Any

import pytest
from rich.console import Console, RenderableType

from medusa_conformance import render
from medusa_mutations import mutations
from medusa_oracles.claims_text import audit
from medusa_spec.registry import invariants

WIDTHS = (80, 100, 160)


def lines(result: RenderableType, width: int) -> list[str]:
    buffer = io.StringIO()
    Console(file=buffer, width=width, color_system=None, highlight=False).print(result)
    return [line.rstrip() for line in buffer.getvalue().splitlines()]


def killed(**more: Any) -> list[dict[str, Any]]:
    """A kill matrix of the whole catalog, with much to say about each mutant."""
    codes = list(invariants())
    return [
        {
            "id": mutation.id,
            "contract": mutation.contract,
            "killer": mutation.killer,
            "killed": True,
            "status": "killed",
            "fired": codes,
            "depth": "differential",
            "examples": 100,
            "crash": None,
        }
        | more
        for mutation in mutations().values()
    ]


def verification(**more: Any) -> dict[str, Any]:
    entries = [
        {"code": code, "contract": rule.contract, "planned": 7, "executed": 7, "failed": 0}
        for code, rule in invariants().items()
    ]
    return {
        "verdict": "pass",
        "device": "cpu",
        "dtype": "float64",
        "seed": 5,
        "coordinates": 7,
        "invariants": entries,
        "mutants": killed(),
        "findings": [],
        "crashes": [],
        "checkout": None,
        "seconds": 12.34,
    } | more


def derivation(nodes: int) -> dict[str, Any]:
    """A root with `nodes - 1` children, and all that can be said of it."""
    paths = [[rank] for rank in range(nodes - 1)]
    return {
        "name": "fan",
        "topk": nodes,
        "heads": 1,
        "nodes": nodes,
        "sentinel": -1,
        "retrieval_order": "canonical",
        "paths": paths,
        "parents": [-1] + [0] * len(paths),
        "tree_indices": list(range(nodes)),
        "attention_mask": [[int(v in (0, u)) for v in range(nodes)] for u in range(nodes)],
        "position_ids": [0] + [1] * len(paths),
        "retrieve_indices": [[0, row] for row in range(1, nodes)] or [[0]],
        "positions": [3] + [4] * len(paths),
        "staged_rows": list(range(3, 3 + nodes)),
    }


@pytest.mark.parametrize("width", WIDTHS)
def test_no_row_of_the_kill_matrix_is_broken_or_cut(width: int) -> None:
    shown = lines(render.verification(verification()), width)
    start = shown.index("Kill matrix")
    for mutation in mutations().values():
        (row,) = (line for line in shown[start:] if line.split()[:1] == [mutation.id])
        assert row.split()[1] == mutation.killer
        assert ("differential" in row) == (width > 80)
    assert not any("…" in line for line in shown)
    contracts = {mutation.contract for mutation in mutations().values()}
    rows = [line for line in shown[start + 2 :] if line.startswith("  ")]
    headings = [line for line in shown[start + 2 :] if line in contracts]
    assert len(headings) == len(contracts)
    # Under the matrix, the verdict has two lines that begin with blanks.
    assert len(rows) == len(mutations()) + 2


def test_more_width_tells_more() -> None:
    headers = [
        next(line for line in lines(render.kill_matrix(killed()), width) if "killed by" in line)
        for width in WIDTHS
    ]
    assert [re.split(r"\s{2,}", header) for header in headers] == [
        ["mutant", "killed by"],
        ["mutant", "killed by", "after", "seen from", "others"],
        ["mutant", "killed by", "after", "seen from", "others that fired"],
    ]


def test_verdict_is_last() -> None:
    rules = len(invariants())
    assert lines(render.verification(verification(mutants=[])), 80)[-3:] == [
        f"PASS  {rules} of {rules} invariants executed on 7 coordinates",
        "      0 of 0 mutants killed by the rule that they break",
        "      cpu float64, seed 5, 12.3 s",
    ]


def test_a_proof_has_no_figure_but_the_time_that_it_took() -> None:
    shown = "\n".join(lines(render.verification(verification()), 160))
    assert [figure.figure for figure in audit(shown)] == ["12.3 s"]


def test_a_fail_says_what_failed() -> None:
    rules = len(invariants())
    document = verification(
        verdict="fail",
        mutants=[],
        crashes=[{"section": "heads", "coordinate": "six-node", "error": "ValueError: odd"}],
        checkout={"a.py": "matches", "b.py": "differs"},
    )
    document["invariants"][3]["failed"] = 2
    assert lines(render.verification(document), 80)[-5:] == [
        f"FAIL  {rules} of {rules} invariants executed on 7 coordinates, 1 failed",
        "      1 crash(es) of the engine",
        "      the checkout is not the pinned release",
        "      0 of 0 mutants killed by the rule that they break",
        "      cpu float64, seed 5, 12.3 s",
    ]


def test_trouble_has_a_name() -> None:
    document = verification(
        verdict="fail",
        mutants=[
            killed(killed=False, status="survived", fired=["TREE.SLOT"])[0],
            killed(killed=False, status="incompetent", depth=None, crash="E: no in tree on x")[1],
        ],
        crashes=[{"section": "heads", "coordinate": "six-node", "error": "ValueError: odd"}],
        findings=[
            {
                "code": "TREE.SLOT",
                "clause": "T2",
                "chapter": "spec/tree.md",
                "section": "0x04A",
                "message": "the slot is another",
                "where": {"row": 4, "round": 2},
                "expected": 11,
                "observed": 1,
                "difference": None,
                "usual_cause": "Somebody forgot the root.",
                "tree": None,
                "follows": [],
                "coordinate": {"name": "six-node"},
                "generation": 1,
                "round": 0,
                "found_on": 3,
                "target": {"kind": "reference"},
                "replay": "medusa-oracles replay findings/01-TREE.SLOT.json",
            }
        ],
        checkout={"a.py": "matches", "b.py": "missing"},
    )
    document["invariants"][3]["executed"] = 0
    shown = lines(render.verification(document), 100)
    one, other = list(mutations().values())[:2]
    assert f"survived {one.killer}: {one.id}; what fired: TREE.SLOT" in shown
    assert f"incompetent: {other.id}: E: no in tree on x" in shown
    assert "crash in heads on six-node: ValueError: odd" in shown
    assert f"not executed: {list(invariants())[3]}" in shown
    start = shown.index("TREE.SLOT  T2 of spec/tree.md, section 0x04A")
    assert shown[start + 1 : start + 8] == [
        "  the slot is another",
        "  at         row 4 (coordinate six-node, generation 1, round 2)",
        "  expected   11",
        "  observed   1",
        "  usually    Somebody forgot the root.",
        "  found on   3 coordinates",
        "  replay     medusa-oracles replay findings/01-TREE.SLOT.json",
    ]
    assert "b.py  missing" in shown


@pytest.mark.parametrize(("nodes", "width", "masks"), [(6, 80, 6), (64, 80, 64), (64, 60, 0)])
def test_a_mask_is_shown_whole_or_not_at_all(nodes: int, width: int, masks: int) -> None:
    shown = lines(render.derivation(derivation(nodes)), width)
    rows = [line for line in shown if re.search(r"█[█·]*$", line)]
    assert [row.split()[-1] for row in rows] == [
        "".join("█" if v in (0, u) else "·" for v in range(nodes)) for u in range(masks)
    ]
    hint = f"No room here for the mask of {nodes} rows; --json has it."
    assert (hint in shown) == (masks == 0)
    assert not any("…" in line for line in shown)


def test_the_mask_of_a_large_tree_is_left_to_json() -> None:
    shown = lines(render.derivation(derivation(render.MASK_ROWS + 1)), render.UNBOUNDED)
    assert "No room here for the mask of 257 rows; --json has it." in shown
    assert not any("█" in line for line in shown)


@pytest.mark.parametrize("width", WIDTHS)
def test_every_mutant_is_listed_with_its_sentence(width: int) -> None:
    listed = [
        {
            "id": mutation.id,
            "contract": mutation.contract,
            "killer": mutation.killer,
            "section": mutation.section,
            "origin": mutation.origin,
            "sentence": mutation.sentence,
        }
        for mutation in mutations().values()
    ]
    shown = lines(render.mutant_list(listed), width)
    assert shown[-1] == f"{len(listed)} mutants"
    flat = " ".join(" ".join(shown).split())
    for entry in listed:
        wild = " (met in the wild)" if entry["origin"] == "wild" else ""
        words = " ".join(f"{entry['sentence']}{wild}".split())
        assert f"{entry['id']} {entry['killer']} {entry['section']} {words}" in flat


def test_a_pipe_has_plain_lines(capsys: pytest.CaptureFixture[str]) -> None:
    document = verification(findings=[])
    document["crashes"] = [{"section": "tree", "coordinate": "x", "error": "long " * 400 + "end"}]
    render.show(render.verification(document))
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert not any(line != line.rstrip() for line in out.splitlines())
    assert any(line.startswith("crash") and line.endswith("end") for line in out.splitlines())


def test_a_stream_without_block_characters_gets_others(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = io.BytesIO()
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(raw, encoding="ascii", write_through=True))
    render.show(render.derivation(derivation(3)))
    rows = raw.getvalue().decode("ascii").splitlines()
    assert [row.split()[-1] for row in rows[3:6]] == ["#..", "##.", "#.#"]


def test_a_terminal_without_block_characters_or_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = io.BytesIO()
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(raw, encoding="ascii", write_through=True))
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "0")
    render.show(render.derivation(derivation(3)))
    rows = re.sub(r"\x1b\[[0-9;]*m", "", raw.getvalue().decode("ascii")).splitlines()
    assert [row.split()[-1] for row in rows[3:6]] == ["#..", "##.", "#.#"]
