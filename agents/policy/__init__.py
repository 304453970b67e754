"""Policies: ordinary Hugging Face folders, tiny ones made here, native action rows for any of them."""

from peira.agents.policy.folder import Policy

__all__ = ["Policy"]
