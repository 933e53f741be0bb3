"""What a run says of itself: a document, a table of accuracies, and a page to read."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from medusa_reference_engine.training_run.calibration import RANKS, Measured
from medusa_reference_engine.training_run.corpus import Corpus
from medusa_reference_engine.training_run.decoding import difference
from medusa_reference_engine.training_run.recipe import Recipe
from medusa_spec.documents import validate
from medusa_spec.stages import Decoded

if TYPE_CHECKING:
    from medusa_reference_engine.training_run.run import Continued

ORDINARY = "ordinary"
"""What the head of the base model is called among the others, which have numbers."""

COLUMNS = tuple((text, when) for text in ("training", "held_out") for when in ("start", "end"))
"""Of the losses."""


def head_rows(
    blank: Mapping[str, Measured], start: Mapping[str, Measured], end: Mapping[str, Measured]
) -> list[dict[str, Any]]:
    """Each head's losses in nats, and its accuracies; the ordinary head began with the backbone."""
    rows = []
    for row in range(len(end["held_out"].labels)):
        began = start if row else blank
        rows.append(
            {
                "head": str(row - 1) if row else ORDINARY,
                "labels": int(end["held_out"].labels[row]),
                "loss": {
                    text: {
                        "start": float(began[text].losses[row]),
                        "end": float(end[text].losses[row]),
                    }
                    for text in end
                },
                "top": end["held_out"].top[row].tolist(),
            }
        )
    return rows


def decoding_rows(trained: Sequence[Decoded], untrained: Sequence[Decoded]) -> list[dict[str, Any]]:
    """What was published by each kind of heads, over all prompts."""
    rows = []
    for heads, decoded in (("trained", trained), ("untrained", untrained)):
        published = sum(sum(one.published) for one in decoded)
        rounds = sum(len(one.published) for one in decoded)
        rows.append(
            {
                "heads": heads,
                "prompts": len(decoded),
                "rounds": rounds,
                "published": published,
                "published_per_round": published / rounds,
            }
        )
    return rows


def rules(
    digests: Mapping[str, str], continued: Continued, reloaded_heads: str | None
) -> list[dict[str, Any]]:
    """What must hold of any run, however well it learnt, and what is observed otherwise.

    `reloaded_heads` is what the heads' own folder gave otherwise than they were trained.
    """
    trained, untrained, reloaded = (
        [one.tokens for one in decoded]
        for decoded in (continued.trained, continued.untrained, continued.reloaded)
    )
    changed = len(set(digests.values())) > 1
    observed = {
        "the backbone is the same before and after the heads' training, and in the checkpoint": (
            f"SHA-256 {digests}" if changed else None
        ),
        "greedy rounds of trained heads publish what plain greedy decoding does": difference(
            continued.plain, trained
        ),
        "greedy rounds of untrained heads publish what plain greedy decoding does": difference(
            continued.plain, untrained
        ),
        "the checkpoint, loaded again, decodes the same": difference(trained, reloaded),
        "the heads' own folder, loaded over untrained ones, gives the trained ones": reloaded_heads,
    }
    return [
        {"rule": rule, "holds": found is None, "observed": found and str(found)}
        for rule, found in observed.items()
    ]


def document(
    recipe: Recipe,
    corpus: Corpus,
    heads: Sequence[Mapping[str, Any]],
    decoding: Sequence[Mapping[str, Any]],
    kept: Sequence[Mapping[str, Any]],
    rest: Mapping[str, Any],
) -> dict[str, Any]:
    """The whole report, held to `train.schema.json`."""
    made = {
        "verdict": "pass" if all(entry["holds"] for entry in kept) else "fail",
        **rest,
        "recipe": asdict(recipe) | {"head_weights": recipe.head_weights},
        "corpus": {
            "files": corpus.files,
            "bytes": {
                "training": len(corpus.training),
                "calibration": len(corpus.calibration),
                "prompts": len(corpus.prompts),
            },
            "sha256": corpus.sha256,
        },
        "heads": heads,
        "decoding": decoding,
        "rules": kept,
    }
    # Tuples become lists, as they are in the file.
    plain: dict[str, Any] = json.loads(json.dumps(made))
    validate(plain, "train", "report.json")
    return plain


def write(folder: Path, report: Mapping[str, Any]) -> None:
    """`report.json`, `report.md`, `accuracy.csv`, and the calibration in it, `accuracy.yaml`."""
    (folder / "report.json").write_text(json.dumps(report, indent=2) + "\n", "utf-8")
    (folder / "report.md").write_text(page(report), "utf-8")
    (folder / "accuracy.csv").write_text(accuracy_table(report), "utf-8")
    (folder / "accuracy.yaml").write_text(calibration(report), "utf-8")


def accuracy_table(report: Mapping[str, Any]) -> str:
    """CSV: a row a head, the ordinary one first; the share of labels among its first ranks.

    Columns `head`, `top1` to `top10`, which are cumulative, and `rows`, the labels judged.
    """
    stream = StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(("head", *(f"top{rank + 1}" for rank in range(RANKS)), "rows"))
    for row in report["heads"]:
        writer.writerow((row["head"], *(f"{share:.6f}" for share in row["top"]), row["labels"]))
    return stream.getvalue()


def calibration(report: Mapping[str, Any]) -> str:
    """YAML: the heads' accuracies, and what they were measured on, as a search declares it."""
    rows = [row["top"] for row in report["heads"] if row["head"] != ORDINARY]
    said = {
        "model": f"medusa-oracles train, backbone {report['backbone_sha256']['after'][:12]}",
        "data_set": f"Python's standard library, held out, {report['corpus']['sha256'][:12]}",
        "prompts": f"windows of {report['recipe']['length']} bytes",
        "policy": "greedy",
        "evidence": "measured",
    }
    accuracy = [f"  - [{', '.join(f'{share:.6f}' for share in row)}]" for row in rows]
    declared = [f"{word}: {value}" for word, value in said.items()]
    return _lines(["form: cumulative", "accuracy:", *accuracy, *declared]) + "\n"


def page(report: Mapping[str, Any]) -> str:
    """The report as Markdown."""
    machine, corpus, recipe = report["machine"], report["corpus"], report["recipe"]
    shape, sizes = recipe["shape"], corpus["bytes"]
    measured = f"measured here, seed {report['seed']}"
    loss = [
        (row["head"], *(f"{row['loss'][text][when]:.3f}" for text, when in COLUMNS))
        for row in report["heads"]
    ]
    accuracy = [
        (row["head"], row["labels"], *(f"{share:.3f}" for share in row["top"]))
        for row in report["heads"]
    ]
    decoding = [
        (row["heads"], row["prompts"], row["rounds"], row["published"], _mean(row))
        for row in report["decoding"]
    ]
    promised = report["promised_accepted"]
    accepted = report["decoding"][0]["published_per_round"] - 1
    kept = [
        f"- {'holds' if entry['holds'] else 'BROKEN'}: {entry['rule']}"
        + ("" if entry["holds"] else f" ({entry['observed']})")
        for entry in report["rules"]
    ]
    return f"""\
# A training run, {report["verdict"].upper()}

Every figure that does not say otherwise was measured here, by
`{report["command"]}` on {machine["cores"]} cores
({machine["architecture"]}, {machine["system"]}, torch threads: {machine["threads"]}), Python
{machine["python"]}, torch {machine["torch"]}, {sum(report["seconds"].values()):.0f} s.

Text: {corpus["files"]} files of Python {machine["python"]}'s standard library, SHA-256
`{corpus["sha256"]}`;
{sizes["training"]:,} bytes to learn from, and in other files {sizes["calibration"]:,} to calibrate
on and {sizes["prompts"]:,} to draw prompts from.

Backbone: {shape["layers"]} layers of width {shape["hidden"]}, {recipe["backbone_steps"]} steps of
{recipe["batch"]} windows of {recipe["length"]} bytes, float32. Then {recipe["heads"]} Medusa heads
of {shape["head_blocks"]} block, {recipe["head_steps"]} steps, the backbone frozen.

{_lines(kept)}

## Loss in nats a byte, {measured}, {recipe["windows"]} windows of each text

The ordinary head begins with the backbone's training, the others with their own.

{_table(("head", *(f"{t.replace('_', '-')}, {w}" for t, w in COLUMNS)), loss)}

## Share of held-out labels among the first ranks, {measured}

{_table(("head", "labels", *(f"top{n + 1}" for n in range(RANKS))), accuracy)}

## Published tokens a round, {measured}, held-out prompts

Behind each prompt of {recipe["prompt_length"]} bytes {recipe["new_tokens"]} are decoded by greedy
rounds in float64, over the {len(report["tree"])} candidate nodes that the accuracies above make
likeliest. Untrained heads are the seeded ones that training began with. Decoding greedily, so small
a model soon repeats itself, and what repeats is easy to guess: no figure here is another model's.

{_table(("heads", "prompts", "rounds", "published", "mean a round"), decoding)}

The accuracies promise {promised:.2f} accepted edges a round of this tree. That is derived, as if
the heads were right independently of each other behind any byte of held-out text. Trained heads
accepted {accepted:.2f}, behind bytes that they had decoded.

## Load it again

```python
import json
from pathlib import Path

from medusa_reference_engine import ReferenceEngine
from medusa_spec import Release

model = ReferenceEngine.from_checkpoint(Path("checkpoint"), capacity=512)
said = json.loads(Path("heads/medusa_config.json").read_text())
release = Release(*(said[word] for word in ("base", "base_revision", "tokenizer", "variant")))
model.load_checkpoint(Path("heads"), release)   # the heads alone, on the same backbone
model.generate(list(b"def main("), 20, [(0,), (0, 0)], 10, POLICY, None)   # of a manifest, say
```

`medusa-oracles search accuracy.yaml --nodes 63` searches a tree for these heads.
"""


def _mean(row: Mapping[str, Any]) -> str:
    return f"{row['published_per_round']:.2f}"


def _table(header: Sequence[Any], rows: Sequence[Sequence[Any]]) -> str:
    table = [header, ["---"] * len(header), *rows]
    return _lines("| " + " | ".join(map(str, row)) + " |" for row in table)


def _lines(lines: Iterable[str]) -> str:
    return "\n".join(lines)
