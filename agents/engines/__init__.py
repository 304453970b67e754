"""Engines: who computes tokens. All of them answer ``base.Engine``."""
