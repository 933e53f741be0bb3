"""What the README shows is what happens."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest

from medusa_conformance.cli import derive_manifest
from medusa_conformance.picture import draw
from medusa_mutations import mutations
from medusa_spec.documents import load_document

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text("utf-8")
BLOCKS = re.findall(r"^```console\n(.*?)^```$", README, re.DOTALL | re.MULTILINE)
SECONDS = re.compile(r"\b\d+\.\d s$", re.MULTILINE)


def commands(block: str) -> list[str]:
    return [line[2:] for line in block.splitlines() if line.startswith("$ ")]


def run(block: str, folder: Path) -> str:
    """Every command of a block in one shell, and all that they print."""
    (folder / "manifests").symlink_to(ROOT / "manifests")
    python = shlex.quote(sys.executable)
    # A checkout need not be installed: the command is its module.
    lines = [f'medusa-oracles() {{ {python} -m medusa_conformance.cli "$@"; }}', *commands(block)]
    path = os.pathsep.join(filter(None, sys.path))
    done = subprocess.run(
        ["bash", "-c", "\n".join(lines)],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": path, "PYTHONIOENCODING": "utf-8"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )
    return done.stdout.decode("utf-8")


def test_blocks_are_found() -> None:
    called = [command for block in BLOCKS for command in commands(block)]
    named = {shlex.split(command)[1] for command in called if command.startswith("medusa-oracles")}
    assert named == {"verify", "derive", "explain", "mutants"}
    assert README.count("```console") == len(BLOCKS)


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: commands(block)[-1])
def test_commands_print_what_the_readme_shows(block: str, tmp_path: Path) -> None:
    shown = "".join(line for line in block.splitlines(True) if not line.startswith("$ "))
    assert SECONDS.sub("T s", run(block, tmp_path)) == SECONDS.sub("T s", shown)


def test_every_mutant_that_is_named_exists() -> None:
    rows = re.findall(r"^\| `([a-z-]+)` \|", README, re.MULTILINE)
    assert len(rows) == 6
    assert set(rows) <= set(mutations())


def links() -> Iterator[str]:
    for target in re.findall(r"\]\(([^)]+)\)", README):
        yield target.partition("#")[0]


def test_every_link_leads_somewhere() -> None:
    found = list(links())
    assert "spec/README.md" in found
    assert [target for target in found if not (ROOT / target).exists()] == []


def test_folders_of_the_house_are_there() -> None:
    rows = re.findall(r"^\| `([a-z_]+)/` \|", README, re.MULTILINE)
    packages = {"spec", "oracles", "reference_engine", "mutations", "manifests", "conformance"}
    assert set(rows) == packages | {"tests", "benchmarks"}
    assert all((ROOT / folder).is_dir() for folder in rows)


def test_the_drawn_tree_is_what_is_drawn_now(tmp_path: Path) -> None:
    manifest = ROOT / "manifests" / "medusa_manifests" / "six-node.yaml"
    draw(derive_manifest(load_document(manifest), manifest), tmp_path / "six-node.svg")
    drawn = (tmp_path / "six-node.svg").read_text("utf-8")
    assert (ROOT / "docs" / "six-node.svg").read_text("utf-8") == drawn


def test_the_pictured_run_passed_and_has_every_mutant() -> None:
    svg = ElementTree.parse(ROOT / "docs" / "verify.svg").getroot()
    text = "\n".join(svg.itertext()).replace("\xa0", " ")
    own = [mutation for mutation in mutations().values() if mutation.contract == "tree"]
    assert re.search(r"^PASS$", text, re.MULTILINE)
    assert f"{len(own)} of {len(own)} mutants killed by the rule that they break" in text
    assert all(re.search(rf"\b{m.id}\s+{re.escape(m.killer)}\s", text) for m in own)
    assert "http" not in text
