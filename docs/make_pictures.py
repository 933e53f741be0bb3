"""Draw the pictures of this folder again, from real runs.

    python docs/make_pictures.py

`verify.svg` is `medusa-oracles verify --contract tree` as a terminal shows it; `six-node.svg` is
what `medusa-oracles derive --picture` makes of the manifest `six-node`; `report.png` is the page of
`medusa-oracles check --report` as Chromium shows it, of the engine of the README's walk-through
before it is mended. It names the release that is installed.
"""

from __future__ import annotations

import contextlib
import io
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from rich.console import Console
from walk_through import blocks, follow

from medusa_conformance import MAX_EXAMPLES, SEED, render, reports, runner
from medusa_conformance.check_document import Run
from medusa_conformance.cli import derive_manifest
from medusa_conformance.cli_common import workers
from medusa_conformance.judging import judge_target, keep
from medusa_conformance.picture import svg_text
from medusa_conformance.scaffold import write_stub
from medusa_conformance.targets import Target
from medusa_spec.documents import load_document
from medusa_spec.files import write_text

DOCS = Path(__file__).resolve().parent
MANIFEST = DOCS.parent / "manifests/medusa_manifests/six-node.yaml"
COMMAND = "medusa-oracles verify --contract tree"
WIDTH = 116
"""Columns: what the widest form of the kill matrix of this contract takes."""

PAGE = "820,1270"
"""Width and height of the part of the page that is shown."""


def main() -> None:
    """All pictures."""
    target = DOCS / "six-node.svg"
    write_text(target, svg_text(derive_manifest(load_document(MANIFEST), MANIFEST), target))
    write_text(DOCS / "verify.svg", verification())
    photograph(DOCS / "report.png")


def verification() -> str:
    """A run of the main job over one contract, as SVG."""
    setting = runner.Setting("cpu", "float64", ("tree",))
    result = runner.verify(setting, SEED, MAX_EXAMPLES, workers())
    document = reports.verification_document(result, MAX_EXAMPLES, None)
    console = Console(record=True, file=io.StringIO(), width=WIDTH, highlight=False)
    console.print(f"[bold]$ {COMMAND}[/]\n")
    console.print(render.verification(document))
    # A picture asks no other server for a font.
    picture = console.export_svg(title=COMMAND, unique_id="verify")
    return re.sub(r"\s*@font-face \{.*?\}", "", picture, flags=re.DOTALL)


def photograph(picture: Path) -> None:
    """The page of a report, from the browser."""
    browser = shutil.which("chromium") or shutil.which("chromium-browser")
    if browser is None:
        raise SystemExit("no Chromium")
    with tempfile.TemporaryDirectory() as place, contextlib.chdir(place):
        engine = Path(place, "medusa")
        write_stub(engine)
        for kind, text in blocks():
            if "$ medusa-oracles check" in text:
                break
            if kind != "console":
                follow(kind, text, Path(place))
        target = Target.module("medusa_adapter:Engine", engine, 30)
        document = judge_target(target, Run(("tree",), SEED, MAX_EXAMPLES), (), workers())
        keep(document, Path("report"))
        flags = ("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars")
        page = (f"--window-size={PAGE}", f"--screenshot={picture}", f"{place}/report/report.html")
        subprocess.run([browser, *flags, *page], check=True, stderr=subprocess.DEVNULL)


if __name__ == "__main__":
    main()
