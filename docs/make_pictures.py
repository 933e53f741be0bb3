"""Draw the pictures of this folder again, from real runs.

    python docs/make_pictures.py

`verify.svg` is `medusa-oracles verify --contract tree` as a terminal shows it; `six-node.svg` is
what `medusa-oracles derive --picture` makes of the manifest `six-node`.
"""

from __future__ import annotations

import io
import re
from pathlib import Path

from rich.console import Console

from medusa_conformance import render, reports, runner
from medusa_conformance.cli import derive_manifest, workers
from medusa_conformance.files import write_text
from medusa_conformance.picture import draw
from medusa_spec.documents import load_document

DOCS = Path(__file__).resolve().parent
MANIFEST = DOCS.parent / "manifests/medusa_manifests/six-node.yaml"
COMMAND = "medusa-oracles verify --contract tree"
WIDTH = 116
"""Columns: what the widest form of the kill matrix of this contract takes."""

EXAMPLES = 60
"""The command's own default."""


def main() -> None:
    """Both pictures."""
    draw(derive_manifest(load_document(MANIFEST), MANIFEST), DOCS / "six-node.svg")
    write_text(DOCS / "verify.svg", verification())


def verification() -> str:
    """A run of the main job over one contract, as SVG."""
    setting = runner.Setting("cpu", "float64", ("tree",))
    result = runner.verify(setting, 0, EXAMPLES, workers())
    document = reports.verification_document(result, EXAMPLES, None)
    console = Console(record=True, file=io.StringIO(), width=WIDTH, highlight=False)
    console.print(f"[bold]$ {COMMAND}[/]\n")
    console.print(render.verification(document))
    # A picture asks no other server for a font.
    picture = console.export_svg(title=COMMAND, unique_id="verify")
    return re.sub(r"\s*@font-face \{.*?\}", "", picture, flags=re.DOTALL)


if __name__ == "__main__":
    main()
