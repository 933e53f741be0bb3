"""Judge every published package that has an adapter, each at the version that is pinned here.

    python conformance/third_party/judge.py [--checkout DIR] [--only NAME] [--keep]

The packages want transformers of two times, so there are two virtual environments, made in
`.third_party/` beside what the suite runs in: torch and all that is pinned for the suite are taken
from there. `--checkout` names a checkout of the pinned FasterDecoding release, which is on no
index; without one its rows say so. A package fails the run where it breaks a rule that its file in
`expected/` does not name, or keeps one that the file says it breaks. `--keep` writes the findings
into `findings/`, where each is a file that `medusa-oracles replay` reads.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
PLACE = ROOT / ".third_party"
MAX_EXAMPLES = 60

VERSION = 12
"""Characters of a version that are shown: a commit needs no more."""


@dataclass(frozen=True, slots=True)
class Package:
    """A package, the adapter that judges it, its environment, and whether it needs a checkout."""

    name: str
    adapter: str
    environment: str
    checkout: bool = False

    @property
    def target(self) -> str:
        """The adapter as `check` takes it."""
        return f"medusa_conformance.adapters.{self.adapter}"


ENVIRONMENTS = {
    "transformers-4.36": (
        ("-r", "requirements-4.36.txt"),
        ("--no-deps", "-r", "requirements-4.36-no-deps.txt"),
    ),
    "transformers-5": (("-r", "requirements.txt"),),
}
"""What pip installs into each, step by step."""

PACKAGES = (
    Package("medusa_llm", "medusa_llm:Engine", "transformers-4.36"),
    Package("eagle_llm", "eagle_llm:Engine", "transformers-4.36"),
    Package("draftretriever", "draftretriever:Engine", "transformers-4.36"),
    Package("rotalabs_accel", "rotalabs_accel:Engine", "transformers-5"),
    Package("modelopt", "modelopt:Engine", "transformers-5"),
    Package("fasterdecoding_utils", "fasterdecoding_utils:Utils", "transformers-4.36", True),
    Package("fasterdecoding_engine", "fasterdecoding_engine:Engine", "transformers-4.36", True),
)


def environment(name: str) -> Path:
    """The interpreter of an environment, which is made where it is not there yet."""
    folder = PLACE / name
    python = folder / "bin" / "python"
    stamp = folder / "made"
    asked = "\n".join((HERE / step[-1]).read_text("utf-8") for step in ENVIRONMENTS[name])
    if stamp.exists() and stamp.read_text("utf-8") == asked:
        return python
    shutil.rmtree(folder, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    site = next((folder / "lib").glob("python*")) / "site-packages"
    # Behind its own packages come those of the suite, with what its own `.pth` files add.
    theirs = sysconfig.get_path("purelib")
    (site / "suite.pth").write_text(f"import site; site.addsitedir({theirs!r})\n", "utf-8")
    for step in ENVIRONMENTS[name]:
        pip = [str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check"]
        subprocess.run([*pip, *step], check=True, cwd=HERE, env=_without_constraints())
    stamp.write_text(asked, "utf-8")
    return python


def _without_constraints() -> dict[str, str]:
    # These environments have pins of their own, some of them other than the suite's.
    return {k: v for k, v in os.environ.items() if not k.startswith("PIP_") or "INDEX" in k}


def judged(package: Package, python: Path, variables: dict[str, str]) -> dict[str, Any]:
    """The document of one check, whose report is left in `.third_party/report`."""
    report = PLACE / "report" / package.name
    command = [str(python), "-m", "medusa_conformance.cli", "check", package.target, "--json"]
    command += ["--max-examples", str(MAX_EXAMPLES), "--report", str(report)]
    expected = HERE / "expected" / f"{package.name}.yaml"
    if expected.exists():
        command += ["--expected-failures", str(expected)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=variables)
    if not done.stdout:
        raise SystemExit(f"{package.name}: {done.stderr.strip()}")
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def shown(package: Package, python: Path, variables: dict[str, str]) -> list[tuple[str, bool]]:
    """Each script on the package, and whether it still shows its fault: it then ends with one."""
    found = []
    for script in sorted((HERE / "scripts").glob(f"{prefix(package)}_*.py")):
        done = subprocess.run(
            [str(python), str(script)], capture_output=True, cwd=ROOT, env=variables, timeout=300
        )
        found.append((script.name, done.returncode != 0))
    return found


def prefix(package: Package) -> str:
    """How the names of a package's scripts begin; those of the release belong to its engine."""
    return "fasterdecoding" if package.name == "fasterdecoding_engine" else package.name


def keep(package: Package, document: dict[str, Any]) -> None:
    """The findings as files that replay from the root of any checkout."""
    folder = HERE / "findings"
    folder.mkdir(exist_ok=True)
    for stale in folder.glob(f"{package.name}-*.json"):
        stale.unlink()
    for finding in document["findings"]:
        name = f"{package.name}-{finding['code']}.json"
        finding["target"]["folder"] = "."
        finding["replay"] = f"medusa-oracles replay conformance/third_party/findings/{name}"
        (folder / name).write_text(json.dumps(finding, indent=2) + "\n", "utf-8")


def row(document: dict[str, Any], scripts: list[tuple[str, bool]]) -> list[str]:
    """One line of the table."""
    statuses = [entry["status"] for entry in document["invariants"]]
    executed = sum(entry["executed"] > 0 for entry in document["invariants"])
    known = statuses.count("expected-failure")
    amiss = statuses.count("fail") + statuses.count("unexpected-pass")
    silent = [name for name, shows in scripts if not shows]
    return [
        f"{document['target']['name']} {document['target']['version'][:VERSION]}",
        f"{executed} of {len(statuses)}",
        str(known),
        str(amiss),
        f"{len(scripts) - len(silent)} of {len(scripts)}",
        "as written" if document["verdict"] == "pass" and not silent else document["verdict"],
    ]


def main(arguments: list[str]) -> int:
    """Judge them all; 0 where each is as its page says."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--checkout", type=Path, help="the pinned FasterDecoding release")
    parser.add_argument("--only", action="append", choices=[p.name for p in PACKAGES])
    parser.add_argument("--keep", action="store_true", help="write findings/")
    options = parser.parse_args(arguments)
    variables = {**os.environ, "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    if options.checkout is not None:
        variables["MEDUSA_CHECKOUT"] = str(options.checkout.resolve())
    columns = ("package", "executed", "known", "amiss", "scripts", "verdict")
    table = Table(*columns, box=None, pad_edge=False)
    told, failed = [], False
    for package in PACKAGES:
        if options.only and package.name not in options.only:
            continue
        if package.checkout and options.checkout is None:
            table.add_row(package.name, "", "", "", "", "no --checkout")
            continue
        python = environment(package.environment)
        document = judged(package, python, variables)
        scripts = shown(package, python, variables)
        if options.keep:
            keep(package, document)
        table.add_row(*row(document, scripts))
        told += [f"{package.name}: {name} shows nothing" for name, shows in scripts if not shows]
        told += [
            f"{package.name}: {entry['code']} {entry['status']}: {entry['reason'] or ''}"
            for entry in document["invariants"]
            if entry["status"] in ("fail", "unexpected-pass", "incompetent")
        ]
        told += [
            f"{package.name}: {each['kind']} in {each['stage']}: {each['text']}"
            for each in document["incidents"]
        ]
        failed = failed or document["verdict"] != "pass" or not all(s for _, s in scripts)
    console = Console(width=120, highlight=False, soft_wrap=True)
    console.print(table)
    for line in told:
        console.print(line, markup=False)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
