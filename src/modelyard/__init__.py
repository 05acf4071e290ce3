"""Modelyard: plan, schedule, train, keep and serve language models on one shared cluster."""

__version__ = "0.1.0"

__all__ = ["__version__"]
