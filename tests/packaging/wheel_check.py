"""Build the sdist, build the wheel from it, and use that wheel from another folder.

    python tests/packaging/wheel_check.py

The sources are importable from a checkout even where the wheel forgot a file, so the wheel goes
into a folder of its own, and every package must come from there.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = {
    "medusa_spec": "spec",
    "medusa_manifests": "manifests",
    "medusa_oracles": "oracles",
    "medusa_reference_engine": "reference_engine",
    "medusa_mutations": "mutations",
    "medusa_conformance": "conformance",
}


def main() -> None:
    """Build, install without dependencies, and look at the result through a second process."""
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        dist, site, elsewhere = work / "dist", work / "site", work / "elsewhere"
        elsewhere.mkdir()
        # Without --wheel or --sdist, the wheel is built from the sdist.
        run(["-m", "build", "--outdir", str(dist), str(ROOT)], ROOT)
        (wheel,) = dist.glob("*.whl")
        run(["-m", "pip", "install", "-q", "--no-deps", "--target", str(site), str(wheel)], ROOT)
        run([__file__, str(site)], elsewhere, site)
        listed = run(
            ["-m", "medusa_conformance.cli", "mutants", "--json"], elsewhere, site, subprocess.PIPE
        )
        if not json.loads(listed):
            sys.exit("the wheel's catalog of mutants is empty")
        print(f"{wheel.name}: every package, every data file and the catalog of mutants are there")


def run(
    arguments: list[str], folder: Path, site: Path | None = None, out: int | None = None
) -> Any:
    """One command of this interpreter in `folder`, with `site` ahead of what is installed."""
    env = os.environ | ({"PYTHONPATH": str(site)} if site else {})
    done = subprocess.run([sys.executable, *arguments], cwd=folder, env=env, stdout=out)
    if done.returncode != 0:
        sys.exit(f"wheel_check: `python {' '.join(arguments)}` failed")
    return done.stdout


def inspect(site: Path) -> None:
    """Import every package from `site`, find every file of the checkout there, load the data."""
    for package, folder in PACKAGES.items():
        found = Path(str(importlib.import_module(package).__file__)).resolve().parent
        if found != site / package:
            sys.exit(f"{package} comes from {found}, and the wheel is in {site}")
        source = ROOT / folder / package
        for file in sorted(source.rglob("*")):
            name = file.relative_to(source)
            if file.is_dir() or "__pycache__" in name.parts:
                continue
            shipped = found / name
            if not shipped.is_file() or shipped.read_bytes() != file.read_bytes():
                sys.exit(f"{package}/{name} is not in the wheel as it is in the checkout")
    load_data(site)


def load_data(site: Path) -> None:
    """Read every schema, registry, catalog, manifest and choice list that the wheel ships."""
    import medusa_manifests
    from medusa_spec import invariants, source_pin
    from medusa_spec.documents import load_document

    invariants()
    source_pin()
    for name in medusa_manifests.names():
        medusa_manifests.load(name)
    for package in PACKAGES:
        for suffix in ("json", "yaml"):
            for file in (site / package).rglob(f"*.{suffix}"):
                load_document(file)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        inspect(Path(sys.argv[1]).resolve())
    else:
        main()
