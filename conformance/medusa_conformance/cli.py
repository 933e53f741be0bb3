"""The command line. Exit codes: 0 pass, 1 fail, 2 inconclusive, 3 usage error or bad input."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from medusa_conformance.cli_check import check, init, replay
from medusa_conformance.cli_common import (
    chosen_contracts,
    contract_option,
    examples_option,
    json_option,
    progress_bar,
    seed_option,
    show,
    workers,
)
from medusa_conformance.cli_cost import cost
from medusa_conformance.cli_search import search
from medusa_conformance.cli_train import train
from medusa_conformance.interrupts import Terminated, heeded
from medusa_spec.documents import load_document, validate
from medusa_spec.errors import InputError, one_line
from medusa_spec.findings import Verdict
from medusa_spec.loading import choices_from, coordinate_from
from medusa_spec.registry import CONTRACTS, invariants

if TYPE_CHECKING:
    from medusa_conformance.runner import Setting, Verification
    from medusa_mutations import Mutation

# torch, rich and the mutants are imported by the commands that use them: `derive` starts at once.

NAME = "medusa-oracles"
"""The command, however it was begun."""

USAGE_ERROR = 3


def version() -> str:
    """The installed release; a checkout that is run where it lies has none."""
    try:
        return metadata.version("medusa-oracles")
    except metadata.PackageNotFoundError:
        return "not installed"


@click.group(context_settings={"help_option_names": ["-h", "--help"]}, invoke_without_command=True)
@click.version_option(version())
@click.pass_context
def cli(context: click.Context) -> None:
    """Judge implementations of Medusa decoding against what pure-numpy oracles derive."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


for command in (check, replay, init, search, cost, train):
    cli.add_command(command)


@cli.command(short_help="Run the main job: the engine passes, every mutant is killed.")
@contract_option
@click.option("--device", type=click.Choice(["cpu", "cuda"]), default="cpu", show_default=True)
@click.option(
    "--dtype",
    type=click.Choice(["float64", "float32", "bfloat16"]),
    default="float64",
    show_default=True,
)
@seed_option
@examples_option
@click.option(
    "--report",
    type=click.Path(path_type=Path, file_okay=False),
    help="Write report.json, junit.xml, report.html and each finding into this folder.",
)
@click.option(
    "--checkout",
    type=click.Path(path_type=Path),
    help="Hash a checkout of the pinned release against the source pin.",
)
@json_option
def verify(
    contracts: Sequence[str],
    device: Any,
    dtype: Any,
    seed: int,
    max_examples: int,
    report: Path | None,
    checkout: Path | None,
    as_json: bool,
) -> int:
    """Run the main job: the reference engine passes, and every mutant is killed."""
    from medusa_conformance import render, reports
    from medusa_conformance.checkout import hash_checkout, is_pinned
    from medusa_conformance.runner import Setting

    require_device(device)
    found = None if checkout is None else hash_checkout(checkout)
    if found is not None and not is_pinned(found):
        # The run takes minutes, and its end is certain.
        click.echo("the checkout is not the pinned release; this run will fail", err=True)
    if report is not None:
        reports.require_room(report)
    setting = Setting(device, dtype, chosen_contracts(contracts))
    result = run_with_progress(setting, seed, max_examples)
    document = reports.verification_document(result, max_examples, found)
    if report is not None:
        reports.write_report(report, document)
    show(document, as_json, render.verification)
    return Verdict(document["verdict"]).exit_code


def require_device(device: str) -> None:
    """Raise where the device is not there, before any work is done."""
    if device == "cuda":
        import torch

        if not torch.cuda.is_available():
            raise InputError("--device", "cuda", "no CUDA device")


def run_with_progress(setting: Setting, seed: int, max_examples: int) -> Verification:
    """The main job, with a bar on a terminal and nothing in a pipe."""
    from medusa_conformance.runner import verify as run

    with progress_bar("drawing coordinates") as progress:
        return run(setting, seed, max_examples, workers(), progress)


@cli.command(short_help="Print the buffers that a tree must compile to.")
@click.argument("source", type=click.Path(path_type=Path))
@click.option("--topk", type=click.IntRange(1, 65536), help="For a choice list; 10 by default.")
@click.option(
    "--heads", type=click.IntRange(0, 64), help="For a choice list; its depth by default."
)
@click.option(
    "--retrieval-order",
    type=click.Choice(["canonical", "pinned"]),
    help="For a choice list; canonical by default.",
)
@click.option("--picture", type=click.Path(path_type=Path), help="Draw tree and mask as SVG.")
@click.option(
    "--checkout",
    type=click.Path(path_type=Path),
    help="Hash a checkout of the pinned release against the source pin.",
)
@json_option
def derive(
    source: Path,
    topk: int | None,
    heads: int | None,
    retrieval_order: str | None,
    picture: Path | None,
    checkout: Path | None,
    as_json: bool,
) -> int:
    """Print the buffers that a manifest or a JSON list of rank paths must compile to."""
    from medusa_conformance import render
    from medusa_conformance.checkout import hash_checkout, is_pinned

    loaded = load_document(source)
    given = {"--topk": topk, "--heads": heads, "--retrieval-order": retrieval_order}
    if isinstance(loaded, list):
        document = derive_choices(loaded, source, topk or 10, heads, retrieval_order or "canonical")
    else:
        for option, value in given.items():
            if value is not None:
                raise InputError(option, "", f"{source} is a manifest, which declares its own")
        document = derive_manifest(loaded, source)
    failed = document.get("frozen") == "differs"
    if checkout is not None:
        found = hash_checkout(checkout)
        document["checkout"] = found
        failed = failed or not is_pinned(found)
    # One row stands for the mask: N*N entries, which come from booleans, would take a minute.
    first = document["attention_mask"][:1]
    validate(document | {"attention_mask": first}, "derive", "derive --json")
    if picture is not None:
        from medusa_conformance.picture import svg_text
        from medusa_spec.files import write_beside

        write_beside(source, [(picture, svg_text(document, picture))])
    show(document, as_json, render.derivation)
    return int(failed)


def derive_choices(
    loaded: Any, source: Path, topk: int, heads: int | None, retrieval_order: str
) -> dict[str, Any]:
    """The derivation of a choice list."""
    from medusa_conformance.derivation import derivation_document

    paths = choices_from(loaded, str(source), topk, heads)
    depth = max(map(len, paths), default=0)
    return derivation_document(
        source.stem, paths, topk, depth if heads is None else heads, retrieval_order, -1
    )


def derive_manifest(loaded: Any, source: Path) -> dict[str, Any]:
    """The derivation of a manifest, and whether its frozen values agree."""
    from medusa_conformance.derivation import derivation_of

    coordinate = coordinate_from(loaded, str(source))
    document = derivation_of(coordinate)
    frozen = {key: v for key, v in coordinate.expected.items() if key in document}
    if frozen:
        agree = all(document[key] == value for key, value in frozen.items())
        document["frozen"] = "matches" if agree else "differs"
    return document


@cli.command(short_help="Explain one rule: source, oracle, mutants, an example.")
@click.argument("code")
@json_option
def explain(code: str, as_json: bool) -> int:
    """Explain one invariant: the rule, its source, its oracle, its mutants, a minimal example."""
    from medusa_conformance import render
    from medusa_conformance.reports import explanation_document
    from medusa_mutations import mutations

    given, code = code, code.upper()
    if code not in invariants():
        from difflib import get_close_matches

        close = get_close_matches(code, invariants(), n=1, cutoff=0.5)
        hint = f"; did you mean {close[0]}?" if close else ""
        raise InputError("CODE", "", f"{given} is not an invariant{hint}")
    breaks = next((m for m in mutations().values() if m.killer == code), None)
    if breaks is None:
        raise InputError("CODE", "", f"no mutant breaks {code} yet")
    show(explanation_document(code, minimal_example(breaks)), as_json, render.explanation)
    return 0


def minimal_example(mutation: Mutation) -> dict[str, Any]:
    """What the killer finds on the coordinate that exposes a mutant."""
    import torch

    import medusa_manifests
    from medusa_conformance.runner import Setting, first_finding, line_of, reference_factory

    torch.set_num_threads(1)
    setting = Setting("cpu", "float64")
    coordinate = medusa_manifests.load(mutation.exposed_by)
    line = line_of(reference_factory(setting, mutation), coordinate, setting)
    found = first_finding(line, mutation.killer)
    assert found is not None
    return {
        "mutant": mutation.id,
        "coordinate": coordinate.name,
        "nodes": coordinate.nodes,
        "finding": str(found.finding),
    }


@cli.command()
@contract_option
@json_option
def mutants(contracts: Sequence[str], as_json: bool) -> int:
    """List the mutation catalog."""
    from medusa_conformance import render
    from medusa_conformance.reports import mutation_document
    from medusa_mutations import mutations

    chosen = contracts or CONTRACTS
    listed = [mutation_document(m) for m in mutations().values() if m.contract in chosen]
    document = {"mutants": listed}
    validate(document, "mutant_list", "mutants --json")
    show(document, as_json, lambda whole: render.mutant_list(whole["mutants"]))
    return 0


def main() -> None:
    """Run the command line; bad input is one line on standard error."""
    code, line = USAGE_ERROR, ""
    try:
        with heeded():
            code = cli.main(prog_name=NAME, standalone_mode=False)
        if sys.stdout is not None:
            # Here and not at the interpreter's end, where it would fail with a code of its own.
            sys.stdout.flush()
    except InputError as error:
        line = f"error: {error}"
    except click.UsageError as error:
        where = NAME if error.ctx is None else error.ctx.command_path
        line = f"error: {one_line(error.format_message())} See {where} --help."
    except click.ClickException as error:
        line = f"error: {one_line(error.format_message())}"
    except click.Abort as abort:
        terminated = isinstance(abort.__cause__, Terminated)
        code, line = (143, "terminated") if terminated else (130, "interrupted")
    except BrokenPipeError:
        # The reader went away, and has seen what it wanted.
        code = 1
    except OSError as error:
        code, line = USAGE_ERROR, f"error: {one_line(str(error))}"
    leave(code, line)


def leave(code: int, line: str) -> None:
    """Exit with this code, whatever becomes of a last line and of what is still to be written."""
    streams = [stream for stream in (sys.stdout, sys.stderr) if stream is not None]
    try:
        if line:
            click.echo(line, err=True)
    except OSError:
        pass
    for stream in streams:
        try:
            stream.flush()
        except OSError:
            # What it still holds goes nowhere; the interpreter would try, and fail, once more.
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    sys.exit(code)


if __name__ == "__main__":
    main()
