"""The base of every configuration class: frozen, and a key nobody reads stops the run."""

from pydantic import BaseModel, ConfigDict

__all__ = ["Settings"]


class Settings(BaseModel):
    """A section of a run's configuration. It belongs to the class that reads it and stands in the same file."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
