"""The run: corpus, backbone, heads, calibration, decoding, report; one folder at its end."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
from torch import Tensor

from medusa_reference_engine.engine import ReferenceEngine
from medusa_reference_engine.learner import Learner
from medusa_reference_engine.training_run import report
from medusa_reference_engine.training_run.backbone import new_decoder, train_backbone
from medusa_reference_engine.training_run.calibration import Measured, measure, searched
from medusa_reference_engine.training_run.corpus import (
    Corpus,
    Text,
    read_corpus,
    standard_library,
    windows,
)
from medusa_reference_engine.training_run.decoding import decode, engine_of, plain
from medusa_reference_engine.training_run.heads import (
    backbone_digest,
    begin,
    new_heads,
    train_heads,
)
from medusa_reference_engine.training_run.recipe import Recipe
from medusa_reference_engine.training_run.saving import heads_differ, save, save_heads
from medusa_reference_engine.training_run.surroundings import (
    Clock,
    Progress,
    machine,
    new_folder,
    torch_threads,
)
from medusa_reference_engine.weights import load_checkpoint
from medusa_spec.arrays import IntArray, RankPath
from medusa_spec.coordinate import canonical_order
from medusa_spec.stages import Decoded


@dataclass(frozen=True, slots=True)
class Learnt:
    """What training left: every tensor by name, its heads as they began and as they ended.

    Measured on windows of the training text and of held-out text: `blank` before any training,
    `start` before the heads', `end` after it.
    """

    untrained: dict[str, Tensor]
    trained: dict[str, Tensor]
    blank: dict[str, Measured]
    start: dict[str, Measured]
    end: dict[str, Measured]


@dataclass(frozen=True, slots=True)
class Continued:
    """The same held-out prompts continued plainly, and by rounds of each kind of heads.

    `promised` is what the accuracies say of the tree: accepted edges a round.
    """

    paths: tuple[RankPath, ...]
    promised: float
    plain: list[tuple[int, ...]]
    trained: list[Decoded]
    untrained: list[Decoded]
    reloaded: list[Decoded]


def train(
    folder: Path, recipe: Recipe, seed: int, command: str, progress: Progress
) -> dict[str, Any]:
    """Run a recipe and write all that came of it into `folder`, which is empty or not there.

    Gives the document of `report.json`, which `train.schema.json` describes. `command` is how its
    reader may run the same again.
    """
    clock = Clock(progress)
    with new_folder(folder) as place, torch_threads(recipe.threads):
        corpus = read_corpus(standard_library(), recipe.corpus_bytes, least=4 * recipe.length)
        learnt = learn(recipe, corpus, seed, clock)
        checkpoint = place / "checkpoint"
        save(checkpoint, recipe, learnt.trained)
        continued = continue_all(recipe, corpus.prompts, seed, learnt, checkpoint, clock)
        digests = {
            "before": backbone_digest(learnt.untrained),
            "after": backbone_digest(learnt.trained),
            "checkpoint": backbone_digest(load_checkpoint(checkpoint)[1]),
        }
        heads = place / "heads"
        release = save_heads(heads, recipe, learnt.trained, digests["after"])
        reloaded = heads_differ(heads, recipe, learnt.trained, learnt.untrained, release)
        document = report.document(
            recipe,
            corpus,
            report.head_rows(learnt.blank, learnt.start, learnt.end),
            report.decoding_rows(continued.trained, continued.untrained),
            report.rules(digests, continued, reloaded),
            {
                "command": command,
                "seed": seed,
                "machine": machine(recipe.threads),
                "tree": continued.paths,
                "promised_accepted": continued.promised,
                "backbone_sha256": digests,
                "seconds": clock.seconds,
            },
        )
        report.write(place, document)
    return document


def learn(recipe: Recipe, corpus: Corpus, seed: int, clock: Clock) -> Learnt:
    """Train the backbone, then the heads on it, and measure each before and after."""
    texts = {"training": corpus.training, "held_out": corpus.calibration}
    samples = {
        name: windows(text, recipe.windows, recipe.length, drawing(seed, f"windows of {name}"))
        for name, text in texts.items()
    }

    def measured(stage: str, learner: Learner) -> dict[str, Measured]:
        found = {}
        with clock(stage, len(samples)) as done:
            for count, (name, tokens) in enumerate(samples.items()):
                found[name] = measure(learner, tokens, recipe.batch)
                done(count + 1)
        return found

    decoder = new_decoder(recipe.shape, seed)
    blank = begin(new_heads(decoder, recipe.heads, seed), recipe)
    before = measured("measuring before training", blank)
    with clock("training the backbone", recipe.backbone_steps) as done:
        batches = endless(corpus.training, recipe, drawing(seed, "batches of the backbone"))
        train_backbone(decoder, batches, recipe.backbone_steps, recipe.backbone_rate, done)

    learner = begin(new_heads(decoder, recipe.heads, seed), recipe)
    untrained = {name: leaf.detach().clone() for name, leaf in learner.parameters.items()}
    start = measured("measuring untrained heads", learner)
    with clock("training the heads", recipe.head_steps) as done:
        batches = endless(corpus.training, recipe, drawing(seed, "batches of the heads"))
        train_heads(learner, batches, recipe.head_steps, recipe.head_rate, done)
    trained = {name: leaf.detach() for name, leaf in learner.parameters.items()}
    return Learnt(untrained, trained, before, start, measured("calibrating", learner))


def continue_all(
    recipe: Recipe, text: Text, seed: int, learnt: Learnt, checkpoint: Path, clock: Clock
) -> Continued:
    """Decode held-out prompts over the tree that the calibration is worth."""
    prompts = windows(text, recipe.prompts, recipe.prompt_length, drawing(seed, "prompts"))
    plan = searched(learnt.end["held_out"], recipe.nodes)
    paths = canonical_order(plan.paths)

    def continued(name: str, engine: ReferenceEngine) -> list[Decoded]:
        with clock(f"decoding with {name}", len(prompts)) as done:
            return decode(engine, prompts, recipe, paths, done)

    trained = engine_of(recipe, learnt.trained)
    with clock("decoding plainly", len(prompts)) as done:
        wanted = plain(trained, prompts, recipe.new_tokens, done)
    return Continued(
        paths,
        float(plan.objective),
        wanted,
        continued("trained heads", trained),
        continued("untrained heads", engine_of(recipe, learnt.untrained)),
        continued(
            "the checkpoint",
            ReferenceEngine.from_checkpoint(checkpoint, recipe.capacity, dtype="float64"),
        ),
    )


def endless(text: Text, recipe: Recipe, random: np.random.Generator) -> Iterator[IntArray]:
    """Batches `[B, S]` of a text."""
    while True:
        yield windows(text, recipe.batch, recipe.length, random)


def drawing(seed: int, purpose: str) -> np.random.Generator:
    """A generator for one purpose, so that more of one changes nothing of another."""
    return np.random.default_rng([seed, crc32(purpose.encode())])
