"""Links of every page lead somewhere, names of files and options exist, and one release is told."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

import medusa_spec
from medusa_conformance.cli import cli

ROOT = Path(__file__).parents[2]
FOLDERS = ("spec", "conformance", "docs", "benchmarks", "tests")
PAGES = sorted([*ROOT.glob("*.md"), *(p for name in FOLDERS for p in (ROOT / name).rglob("*.md"))])
LINK = re.compile(r"\]\(([^)\s]+)\)")
FENCE = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)


def prose(page: Path) -> str:
    """A page without its code, in which brackets are no links."""
    return FENCE.sub("", page.read_text("utf-8"))


def anchors(page: Path) -> set[str]:
    """What a heading is linked by: small letters, no punctuation, hyphens for blanks."""
    titles = re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def broken(page: Path) -> Iterator[str]:
    """The links of a page that lead nowhere in the checkout; other hosts are not asked."""
    for target in LINK.findall(prose(page)):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        led = (page.parent / path) if path else page
        if not led.exists() or (anchor and led.suffix == ".md" and anchor not in anchors(led)):
            yield target


def test_pages_are_found() -> None:
    names = {page.relative_to(ROOT).as_posix() for page in PAGES}
    assert {"README.md", "CONTRIBUTING.md", "spec/README.md", "spec/tree.md"} <= names


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_link_leads_somewhere(page: Path) -> None:
    assert list(broken(page)) == []


def test_a_link_that_leads_nowhere_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# A, b\n[1](#a-b) [2](page.md#a-b) [3](#b) [4](c.md) [5](page.md#b)\n", "utf-8"
    )
    assert list(broken(page)) == ["#b", "c.md", "page.md#b"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_command_and_option_that_is_named_exists(page: Path) -> None:
    text = page.read_text("utf-8")
    assert set(re.findall(r"(?:`|\$ )medusa-oracles ([a-z]+)", text)) <= set(cli.commands)
    for command, rest in re.findall(r"medusa-oracles ([a-z]+)([^`\n|]*)", text):
        if command in cli.commands:
            known = {name for option in cli.commands[command].params for name in option.opts}
            own = rest.partition(" -- ")[0]
            assert set(re.findall(r"--[a-z-]+", own)) <= known | {"--help"}


def test_the_release_has_one_number() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    released = re.findall(
        r"^## \[(.+?)\]", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE
    )
    assert project["version"] == medusa_spec.__version__ == released[0]
