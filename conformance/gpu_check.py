"""Judge the reference engine on a machine with a card and no network, in under five minutes.

    python3 conformance/gpu_check.py fetch                          where pip has an index
    python3 conformance/gpu_check.py run [--device cuda|cpu]        where the card is

`fetch` puts the wheels that such a machine may lack into `.whl/`, which travels with the
checkout. `run` unpacks them into a temporary folder, uses the sources as they lie, and needs
torch and numpy only. It runs the CUDA tests, if pytest is there, then `medusa-oracles verify` in
float32 and in bfloat16, each under a time limit; reports go to `$OUT`, or to `report/`. The
summary comes last. It ends with 0 only if everything passed.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
WHEELS = ROOT / ".whl"
FOLDERS = ("spec", "oracles", "manifests", "mutations", "reference_engine", "conformance")
CARRIED = (
    "attrs",
    "click",
    "hypothesis",
    "jsonschema",
    "jsonschema-specifications",
    "markdown-it-py",
    "mdurl",
    "Pygments",
    "PyYAML",
    "referencing",
    "rich",
    "rpds-py",
    "safetensors",
    "sortedcontainers",
    "typing_extensions",
)
# pip takes a tag literally: a machine that runs the newest also takes the older ones.
PLATFORMS = tuple(
    f"{tag}_x86_64" for tag in ("manylinux_2_28", "manylinux_2_17", "manylinux2014", "manylinux1")
)
DTYPES = ("float32", "bfloat16")

# Together 290 seconds: a hung kernel still leaves a summary inside five minutes.
INSTALL_LIMIT, PROBE_LIMIT, TESTS_LIMIT, VERIFY_LIMIT = 30, 20, 60, 90

PROBE = """
import json, sys, torch
card = torch.cuda.is_available()
name = torch.cuda.get_device_name(0) if card else None
print(json.dumps({"torch": torch.__version__, "card": name, "cuda": torch.version.cuda}))
"""


@dataclass(frozen=True)
class Step:
    """One command that ran: its exit code, none where its time was up, and its seconds."""

    code: int | None
    seconds: float

    @property
    def passed(self) -> bool:
        """Whether it ended by itself, and well."""
        return self.code == 0

    @property
    def ending(self) -> str:
        """How it ended, in words."""
        return "ran out of time" if self.code is None else f"exit code {self.code}"


def pins() -> list[str]:
    """The carried packages as `name==version`, from the constraints file."""
    lines = (ROOT / "constraints.txt").read_text("utf-8").splitlines()
    versions = dict(line.split("==") for line in lines if "==" in line)
    return [f"{name}=={versions[name]}" for name in CARRIED]


def fetch(python_version: str) -> int:
    """Download the carried packages as wheels for x86-64 Linux and one Python version."""
    platforms = [word for tag in PLATFORMS for word in ("--platform", tag)]
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
    command += ["--only-binary=:all:", "--implementation", "cp", *platforms]
    command += ["--python-version", python_version, "--dest", str(WHEELS), *pins()]
    code = subprocess.run(command, check=False).returncode
    if code == 0:
        size = sum(wheel.stat().st_size for wheel in WHEELS.glob("*.whl")) / 2**20
        print(f"{WHEELS.name}/ holds {size:.1f} MiB of wheels for Python {python_version}")
    return code


def install(site: Path) -> bool:
    """Unpack the wheels into `site`; nothing of the machine's own packages changes."""
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps"]
    command += ["--no-compile", "--disable-pip-version-check", "--find-links", str(WHEELS)]
    command += ["--target", str(site), *pins()]
    try:
        return subprocess.run(command, check=False, timeout=INSTALL_LIMIT).returncode == 0
    except subprocess.TimeoutExpired:
        return False


def environment(site: Path) -> dict[str, str]:
    """The environment of this process, the wheels and the sources ahead of what is installed."""
    roots = [str(site), *(str(ROOT / folder) for folder in FOLDERS)]
    inherited = [path for path in (os.environ.get("PYTHONPATH"),) if path]
    return os.environ | {"PYTHONPATH": os.pathsep.join(roots + inherited)}


def step(title: str, arguments: list[str], limit: float, log: Path, env: dict[str, str]) -> Step:
    """Run one command of this interpreter, its output in `log`; say how it ended if not well.

    A log that is to be JSON gets standard output only, and standard error lies beside it.
    """
    print(f"== {title}", flush=True)
    start = time.monotonic()
    beside = log.with_suffix(".log")
    with log.open("wb") as out, beside.open("wb") as errors:
        process = subprocess.Popen(
            [sys.executable, *arguments],
            cwd=ROOT,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=errors,
            start_new_session=True,
        )
        code: int | None
        try:
            code = process.wait(limit)
        except subprocess.TimeoutExpired:
            # Its workers share the session, and would hold the card if only it were ended.
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            code = None
    done = Step(code, time.monotonic() - start)
    if not done.passed:
        said = beside.read_text("utf-8", "replace").splitlines()
        if log.suffix != ".json":
            said = log.read_text("utf-8", "replace").splitlines() + said
        print("\n".join([*said[-15:], f"{title}: {done.ending}"]), flush=True)
    return done


def verdict_line(dtype: str, done: Step, output: Path) -> str:
    """One line of the summary: what `verify` said, or why it said nothing."""
    try:
        document: dict[str, Any] = json.loads(output.read_text("utf-8"))
    except ValueError:
        return f"{dtype:<9} no verdict: {done.ending}; see {output.with_suffix('.log').name}"
    judged, mutants = document["invariants"], document["mutants"]
    executed = sum(bool(entry["executed"]) for entry in judged)
    planned = sum(bool(entry["planned"]) for entry in judged)
    killed = sum(bool(entry["killed"]) for entry in mutants)
    return (
        f"{dtype:<9} {document['verdict']}: {executed}/{planned} invariants executed, "
        f"{killed}/{len(mutants)} mutants killed, {document['seconds']:.1f} s"
    )


def probe(env: dict[str, str]) -> dict[str, str | None] | None:
    """What torch sees of the machine, or nothing where it does not answer."""
    command = [sys.executable, "-c", PROBE]
    try:
        answer = subprocess.run(
            command, env=env, check=True, timeout=PROBE_LIMIT, stdout=subprocess.PIPE
        )
    except subprocess.SubprocessError as error:
        print(f"gpu_check: torch does not start here: {error.__class__.__name__}")
        return None
    machine: dict[str, str | None] = json.loads(answer.stdout)
    return machine


def judge(device: str, site: Path, report: Path) -> int:
    """Probe, test, verify; print the summary and keep a copy of it."""
    start = time.monotonic()
    env = environment(site)
    machine = probe(env)
    if machine is None:
        return 2
    card = machine["card"] if device == "cuda" else f"CPU, {os.cpu_count()} cores"
    if card is None:
        print(f"torch {machine['torch']} sees no card; --device cpu goes without one")
        return 2
    versions = f"{machine['torch']} (CUDA {machine['cuda']}), Python {platform.python_version()}"
    lines = [f"device    {card}", f"torch     {versions}"]
    steps = []
    if importlib.util.find_spec("pytest") is None:
        lines.append("tests     pytest is not installed here")
    else:
        output = report / "tests.txt"
        tests = ["-m", "pytest", "-q", "-m", "cuda", "-p", "no:cacheprovider"]
        steps.append(step("CUDA tests", tests, TESTS_LIMIT, output, env))
        closing = output.read_text("utf-8", "replace").splitlines() or [steps[-1].ending]
        lines.append(f"tests     {closing[-1]}")
    for dtype in DTYPES:
        output = report / f"verify-{dtype}.json"
        verify = ["-m", "medusa_conformance.cli", "verify", "--json"]
        verify += ["--device", device, "--dtype", dtype]
        steps.append(step(f"verify {dtype}", verify, VERIFY_LIMIT, output, env))
        lines.append(verdict_line(dtype, steps[-1], output))
    passed = all(done.passed for done in steps)
    seconds = time.monotonic() - start
    lines.append(f"together  {'pass' if passed else 'fail'} in {seconds:.0f} s")
    summary = "\n".join(lines)
    (report / "summary.txt").write_text(summary + "\n", "utf-8")
    print(f"\n{summary}")
    return 0 if passed else 1


def run(device: str) -> int:
    """Everything that needs the card, from a folder of wheels and the sources."""
    if not WHEELS.is_dir():
        print(
            f"gpu_check: {WHEELS} is missing; `gpu_check.py fetch` makes it where pip has an index"
        )
        return 3
    report = Path(os.environ.get("OUT") or ROOT / "report")
    report.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as site:
        if not install(Path(site)):
            print("gpu_check: the wheels in .whl/ do not install here; fetch them for this Python")
            return 3
        return judge(device, Path(site), report)


def main() -> int:
    """The two commands."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    fetching = commands.add_parser("fetch", help="download the wheels")
    fetching.add_argument("--python-version", default="3.12", help="of the machine with the card")
    running = commands.add_parser("run", help="judge the engine")
    running.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    given = parser.parse_args()
    return fetch(given.python_version) if given.command == "fetch" else run(given.device)


if __name__ == "__main__":
    sys.exit(main())
