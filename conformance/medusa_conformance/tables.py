"""Tables of head accuracies, of which trees are searched: YAML, plain CSV, and a log of runs."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Mapping, Sequence
from io import StringIO
from pathlib import Path
from typing import Any

from medusa_spec.coordinate import Calibration
from medusa_spec.documents import parse_json, parse_yaml, read_text, validate
from medusa_spec.errors import InputError
from medusa_spec.lawful import accuracy_inconsistencies
from medusa_spec.loading import calibration_from

MOST_RANKS = 64
"""Ranks of a head that a search may use, as in a coordinate."""

UNSAID = "not declared"
"""What a CSV file does not say; a YAML table has to."""

COLUMNS = "head, top1, top2, ...; head, rank0, rank1, ...; or train/medusa0_top1, ..."
"""The columns of the three tables in CSV: cumulative, incremental, and a log of runs."""

COUNTED, ORDINARY = "rows", "ordinary"
"""A last column that a table in CSV may have, of the labels that were counted, and the head of a
first row, which is the base model's own and no part of a tree. A training run writes both."""

_TOP = re.compile(r"train/medusa(\d{1,3})_top(\d{1,4})")

Row = Sequence[str]


def read_calibration(table: Path, nodes: int, max_rank: int | None, run: str | None) -> Calibration:
    """What a table says of its heads, and the budget; all ranks of it where no number is given.

    Raises `InputError` for a file that is no table, for accuracies that are none, for a run that
    is not there or not chosen, and for more ranks than the table has.
    """
    source, text = str(table), read_text(table)
    if table.suffix.lower() == ".csv":
        document = _from_csv(text, source, run)
    else:
        if run is not None:
            raise InputError("--run", "", f"{source} is no log of runs")
        document = parse_json(text, source) if table.suffix == ".json" else parse_yaml(text, source)
    validate(document, "calibration", source)
    for field, rule in accuracy_inconsistencies(document["form"], document["accuracy"], "accuracy"):
        raise InputError(source, field, rule)
    ranks = len(document["accuracy"][0])
    if max_rank is not None and max_rank > ranks:
        rule = f"is {max_rank}, and {source} has {ranks} ranks a head; more it does not support"
        raise InputError("--max-rank", "", rule)
    asked = min(ranks, MOST_RANKS) if max_rank is None else max_rank
    return calibration_from(document | {"nodes": nodes, "max_rank": asked})


def _from_csv(text: str, source: str, run: str | None) -> dict[str, Any]:
    lines = _lines(text, source)
    _, header = next(lines, (1, []))
    if any(_TOP.fullmatch(name) for name in header):
        return _from_log(header, lines, source, run)
    if run is not None:
        raise InputError("--run", "", f"{source} is no log of runs")
    ranked = header[1:-1] if header[-1:] == [COUNTED] else header[1:]
    for form, first in (("cumulative", "top1"), ("incremental", "rank0")):
        name, begin = first[:-1], int(first[-1])
        named = [f"{name}{begin + n}" for n in range(len(ranked))]
        if ranked and header[:1] == ["head"] and ranked == named:
            return _document(form, _heads(header, ranked, lines, source), UNSAID)
    raise InputError(source, "line 1", f"names no columns of a table, which are {COLUMNS}")


def _document(form: str, accuracy: list[list[float]], model: str) -> dict[str, Any]:
    """A table that says nothing of itself: figures that its reader takes over from a file."""
    said = {"model": model, **dict.fromkeys(("data_set", "prompts", "policy"), UNSAID)}
    return {"form": form, "accuracy": accuracy, **said, "evidence": "source-reported"}


def _lines(text: str, source: str) -> Iterator[tuple[int, Row]]:
    """The rows that are not empty, each with the number of its last line."""
    # A spreadsheet may begin its file with a mark of the byte order.
    reader = csv.reader(StringIO(text.removeprefix("\ufeff"), newline=""), strict=True)
    try:
        for row in reader:
            if row:
                yield reader.line_num, [cell.strip() for cell in row]
    except csv.Error as error:
        raise InputError(source, f"line {reader.line_num}", f"not CSV: {error}") from None


def _heads(
    header: Row, ranked: Row, lines: Iterator[tuple[int, Row]], source: str
) -> list[list[float]]:
    found: list[list[float]] = []
    for number, row in lines:
        cells = _cells(header, row, number, source)
        if cells["head"] == ORDINARY and not found:
            continue
        if cells["head"] != str(len(found)):
            rule = f"is {cells['head'][:20]!r}; heads are counted from 0, so this is {len(found)}"
            raise InputError(source, f"line {number} head", rule)
        found.append([_share(cells, name, f"line {number}", source) for name in ranked])
    if not found:
        raise InputError(source, "", "holds no head behind its line of column names")
    return found


def _cells(header: Row, row: Row, number: int, source: str) -> Mapping[str, str]:
    if len(row) != len(header):
        rule = f"has {len(row)} cells, and there are {len(header)} columns"
        raise InputError(source, f"line {number}", rule)
    return dict(zip(header, row, strict=True))


def _share(cells: Mapping[str, str], name: str, place: str, source: str) -> float:
    try:
        share = float(cells[name])
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        rule = f"{cells[name][:20]!r} is no number from 0 to 1"
        raise InputError(source, f"{place} {name}", rule)
    return share


def _from_log(
    header: Row, lines: Iterator[tuple[int, Row]], source: str, run: str | None
) -> dict[str, Any]:
    """One run of a log with a row a run, which shows the top-1 to top-R accuracies of its heads."""
    pairs = sorted((int(m[1]), int(m[2])) for m in map(_TOP.fullmatch, header) if m)
    heads, ranks = 1 + pairs[-1][0], max(rank for _, rank in pairs)
    whole = [(head, rank) for head in range(heads) for rank in range(1, ranks + 1)]
    if pairs != whole or len(set(header)) < len(header):
        rule = f"does not name top-1 to top-{ranks} of each of {heads} heads, each of them once"
        raise InputError(source, "line 1", rule)
    runs: dict[str, Mapping[str, str]] = {}
    for number, row in lines:
        cells = _cells(header, row, number, source)
        name = cells.get("Name") or f"line {number}"
        if name in runs:
            raise InputError(source, f"line {number} Name", f"a second run is called {name[:80]}")
        runs[name] = cells
    if run is None and len(runs) == 1:
        (run,) = runs
    if run not in runs:
        wanted = "has no run" if run is None else f"has no run {run}"
        if run is None and runs:
            wanted = "has several runs, of which --run chooses one"
        known = f": {', '.join(runs)}" if runs else ""
        raise InputError(source, "", f"{wanted}{known}"[:400])
    cells, place = runs[run], f"run {run}"
    accuracy = [
        [_share(cells, f"train/medusa{head}_top{rank + 1}", place, source) for rank in range(ranks)]
        for head in range(heads)
    ]
    folder = cells.get("output_dir") or ""
    model = f"{place}, {folder}" if folder else place
    return _document("cumulative", accuracy, model[:200])
