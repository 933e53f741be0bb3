"""The process that judges an engine for pytest: a line on standard input, a document in a file.

`python -m medusa_conformance.pytest_judge FILE` is what `medusa_conformance.cases` starts.
"""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from threading import Thread
from typing import Any

from medusa_conformance.check_document import Run
from medusa_conformance.child import go
from medusa_conformance.cli_common import workers
from medusa_conformance.expected import load_expectations
from medusa_conformance.incident import Incident
from medusa_conformance.judging import judge_target, keep
from medusa_conformance.targets import Target
from medusa_spec.errors import InputError
from medusa_spec.files import write_text


def main() -> None:
    """Answer the request; an `error` is a line that says why there is nothing to judge."""
    request = json.loads(sys.stdin.readline())
    Thread(target=_follow, daemon=True).start()
    try:
        answer = _document(request)
    except InputError as error:
        answer = {"error": str(error)}
    write_text(Path(sys.argv[1]), json.dumps(answer))


def _follow() -> None:
    """End with who asks: they keep standard input open for as long as they want to know."""
    while os.read(sys.stdin.fileno(), 1):
        pass
    go()


def _document(request: Mapping[str, Any]) -> dict[str, Any]:
    run = Run(tuple(request["contracts"]), request["seed"], request["max_examples"])
    expected = request["expected"]
    expectations = () if expected is None else load_expectations(Path(expected))
    target = Target.module(request["engine"], Path(request["folder"]), request["timeout"])
    document = judge_target(target, run, expectations, workers())
    keep(document, None, Path(request["kept"]))
    if document["findings"] and request["path"] and not _stands_alone(target, request):
        for finding in document["findings"]:
            finding["replay"] = f"PYTHONPATH={shlex.quote(request['path'])} {finding['replay']}"
    return document


def _stands_alone(target: Target, request: Mapping[str, Any]) -> bool:
    """Whether who replays finds the engine without the folders that pytest alone imports from."""
    os.environ["PYTHONPATH"] = request["python_path"]
    try:
        with target.remote() as remote:
            remote.describe()
    except (InputError, Incident):
        return False
    return True


if __name__ == "__main__":
    main()
