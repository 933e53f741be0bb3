"""A real training run for two cores: backbone, Medusa-1 heads, calibration, greedy rounds."""

from medusa_reference_engine.training_run.recipe import FULL, SMOKE, Recipe
from medusa_reference_engine.training_run.run import train

__all__ = ["FULL", "SMOKE", "Recipe", "train"]
