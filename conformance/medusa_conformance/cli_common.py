"""What the commands share: options, a progress bar, and how a result is shown."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import click

from medusa_conformance import MAX_EXAMPLES, SEED
from medusa_spec.errors import one_line
from medusa_spec.registry import CONTRACTS

Command = TypeVar("Command", bound=Callable[..., Any])


def contract_option(command: Command) -> Command:
    """`--contract`, which may be given more than once."""
    return click.option(
        "--contract",
        "contracts",
        multiple=True,
        type=click.Choice(CONTRACTS),
        help="Only this contract; may be repeated.",
    )(command)


def json_option(command: Command) -> Command:
    """`--json`."""
    return click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")(command)


def seed_option(command: Command) -> Command:
    """`--seed`."""
    return click.option(
        "--seed", type=click.IntRange(0, 2**32 - 1), default=SEED, show_default=True
    )(command)


def examples_option(command: Command) -> Command:
    """`--max-examples`."""
    return click.option(
        "--max-examples",
        type=click.IntRange(1, 100_000),
        default=MAX_EXAMPLES,
        show_default=True,
        help="Random coordinates, besides the frozen ones.",
    )(command)


def chosen_contracts(given: Sequence[str]) -> tuple[str, ...]:
    """The contracts that were asked for in the order of a round; all where none was."""
    return tuple(name for name in CONTRACTS if name in given) if given else CONTRACTS


def workers() -> int:
    """Processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@contextmanager
def progress_bar(first: str) -> Iterator[Callable[[str, int, int], None]]:
    """A bar on a terminal, and nothing in a pipe; gives what a run reports its progress to."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    # The name of an engine is its own, and no markup.
    label = TextColumn("{task.description:40}", markup=False)
    columns = (label, BarColumn(), MofNCompleteColumn())
    console = Console(stderr=True)
    with Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal
    ) as bar:
        task = bar.add_task(first, total=None)

        def progress(what: str, done: int, total: int) -> None:
            bar.update(task, description=one_line(what), completed=done, total=total)

        yield progress


def show(
    document: Mapping[str, Any], as_json: bool, rendered: Callable[[Mapping[str, Any]], Any]
) -> None:
    """One JSON document, or what a person reads."""
    if as_json:
        click.echo(json.dumps(document))
    else:
        from medusa_conformance import render

        render.show(rendered(document))
