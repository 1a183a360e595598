"""A run as one zip that others can check: model, inputs, certificates, their checker, and what they are evidence of."""

from __future__ import annotations

from proofmap.dossier.assemble import dossier

__all__ = ["dossier"]
