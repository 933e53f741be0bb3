"""What the README shows is what happens."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from datetime import date
from pathlib import Path
from runpy import run_path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

import medusa_manifests
from medusa_conformance.cli import derive_manifest
from medusa_conformance.expected import load_expectations
from medusa_conformance.picture import svg_text
from medusa_mutations import mutations
from medusa_spec.documents import load_document

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text("utf-8")
TIMES = re.compile(r"\b\d+\.\d+ ?s( \(\d+:\d\d:\d\d\))?$", re.MULTILINE)

# Installed, the plugin is there already; from a checkout it must be named.
PLUGIN = "-p no:medusa -p medusa_conformance.pytest_plugin"

# No package: what the pictures are made of, too.
WALK = run_path(str(ROOT / "docs" / "walk_through.py"))
FENCE, WALKED = WALK["FENCE"], WALK["blocks"]()

BLOCKS = [text for kind, text in FENCE.findall(README) if kind == "console"]
ALONE = [text for text in BLOCKS if ("console", text) not in WALKED]


def commands(block: str) -> list[str]:
    return [line[2:] for line in block.splitlines() if line.startswith("$ ")]


def printed(block: str) -> str:
    """What a block shows behind its commands, whatever time it took."""
    return TIMES.sub("T s", "".join(x for x in block.splitlines(True) if not x.startswith("$ ")))


def run(block: str, folder: Path) -> tuple[str, Path]:
    """Every command of a block in one shell: all that they print, and where they ended."""
    python = shlex.quote(sys.executable)
    # A checkout need not be installed: the command is its module.
    lines = [
        f'medusa-oracles() {{ {python} -m medusa_conformance.cli "$@"; }}',
        f'pytest() {{ {python} -m pytest {PLUGIN} "$@"; }}',
        *commands(block),
        'pwd > "$ENDED"',
    ]
    path = os.pathsep.join(filter(None, sys.path))
    ended = folder / ".ended"
    env = {"PYTHONPATH": path, "PYTHONIOENCODING": "utf-8", "COLUMNS": "80", "ENDED": str(ended)}
    done = subprocess.run(
        ["bash", "-c", "\n".join(lines)],
        cwd=folder,
        env=os.environ | env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )
    return TIMES.sub("T s", done.stdout.decode("utf-8")), Path(ended.read_text("utf-8").strip())


def added(diff: str) -> int:
    return sum(line.startswith("+") for line in diff.splitlines())


def test_blocks_are_found() -> None:
    called = [command for block in BLOCKS for command in commands(block)]
    named = {shlex.split(command)[1] for command in called if command.startswith("medusa-oracles")}
    needing_none = {"init", "derive", "explain", "search", "cost"}
    assert named == {"check", "replay", "verify", *needing_none}
    assert README.count("```console") == len(BLOCKS)


def test_the_walk_through_ends_as_it_is_shown(tmp_path: Path) -> None:
    folder, connected = tmp_path, 0
    for kind, text in WALKED:
        if kind == "console":
            said, folder = run(text, folder)
            assert said == printed(text)
        else:
            WALK["follow"](kind, text, tmp_path)
            connected += added(text) if "medusa_adapter.py" in text.splitlines()[0] else 0
    assert {kind for kind, _ in WALKED} == {"console", "diff", "python"}
    assert 0 < connected <= 20


@pytest.mark.parametrize("block", ALONE, ids=lambda block: commands(block)[-1])
def test_commands_print_what_the_readme_shows(block: str, tmp_path: Path) -> None:
    if " node " in block and shutil.which("node") is None:
        pytest.skip("Node.js is not installed")
    for name in ("manifests", "conformance"):
        (tmp_path / name).symlink_to(ROOT / name)
    assert run(block, tmp_path)[0] == printed(block)


def test_a_server_writes_what_is_judged(
    call: Callable[..., Any], six_node: dict[str, Any], tmp_path: Path
) -> None:
    (code,) = (text for kind, text in FENCE.findall(README) if "write_trace" in text)
    tree = np.array(six_node["attention_mask"], bool)
    given = {
        "tokens": [41, 42, 43],
        "paths": six_node["paths"],
        "policy": medusa_manifests.load("six-node").policy,
        "mask": np.concatenate([np.ones((6, 3), bool), tree], axis=1),
        "positions": 3 + np.array(six_node["position_ids"]),
        "number": 7,
    }
    exec(code, given)
    assert [file.name for file in (tmp_path / "traces").iterdir()] == ["000007.npz"]
    document = json.loads(call("check", "traces/", "--json").out)
    executed = {row["code"] for row in document["invariants"] if row["executed"]}
    assert {"VERIFICATION.POSITION", "VERIFICATION.RECTANGULAR_MASK"} <= executed
    assert document["verdict"] == "pass"


def test_a_test_of_ones_own_is_the_one_that_init_writes() -> None:
    (shown,) = (text for kind, text in FENCE.findall(README) if "parametrize_with_" in text)
    stub = ROOT / "conformance" / "medusa_conformance" / "test_stub.txt"
    written = re.sub(r'^ *""".*?"""\n', "", stub.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)
    assert written.strip() == shown.strip()


def test_the_expected_failure_is_one_that_there_may_be(tmp_path: Path) -> None:
    ((_, text),) = (found for found in FENCE.findall(README) if found[0] == "yaml")
    (tmp_path / "expected.yaml").write_text(text, "utf-8")
    (entry,) = load_expectations(tmp_path / "expected.yaml")
    count = {entry.invariant: 1}
    assert entry.outcome(count, count, date.today()) == "as-expected"


def test_every_mutant_that_is_named_exists() -> None:
    rows = re.findall(r"^\| `([a-z-]+)` \|", README, re.MULTILINE)
    assert len(rows) == 6
    assert set(rows) <= set(mutations())


def test_folders_of_the_house_are_there() -> None:
    rows = re.findall(r"^\| `([a-z_]+)/` \|", README, re.MULTILINE)
    packages = {"spec", "oracles", "reference_engine", "mutations", "manifests", "conformance"}
    assert set(rows) == packages | {"tests", "benchmarks"}
    assert all((ROOT / folder).is_dir() for folder in rows)


def test_the_drawn_tree_is_what_is_drawn_now(tmp_path: Path) -> None:
    manifest = ROOT / "manifests" / "medusa_manifests" / "six-node.yaml"
    drawn = svg_text(derive_manifest(load_document(manifest), manifest), Path("six-node.svg"))
    assert (ROOT / "docs" / "six-node.svg").read_text("utf-8") == drawn


def test_the_pictured_page_is_a_small_picture() -> None:
    picture = (ROOT / "docs" / "report.png").read_bytes()
    assert picture.startswith(b"\x89PNG\r\n")
    assert len(picture) < 150_000


def test_the_pictured_run_passed_and_has_every_mutant() -> None:
    svg = ElementTree.parse(ROOT / "docs" / "verify.svg").getroot()
    text = "\n".join(svg.itertext()).replace("\xa0", " ")
    own = [mutation for mutation in mutations().values() if mutation.contract == "tree"]
    assert re.search(r"^PASS$", text, re.MULTILINE)
    assert f"{len(own)} of {len(own)} mutants killed by the rule that they break" in text
    assert all(re.search(rf"\b{m.id}\s+{re.escape(m.killer)}\s", text) for m in own)
    assert "http" not in text
