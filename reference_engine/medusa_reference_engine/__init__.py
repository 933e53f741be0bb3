"""The reference engine: a LLaMA decoder with Medusa heads in plain torch."""

from medusa_reference_engine.engine import ReferenceEngine, Stages

__all__ = ["ReferenceEngine", "Stages"]
