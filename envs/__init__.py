"""Worlds: what happens. A world is one file that ends in ``WORLD = WorldSpec(...)``; nothing else registers it."""
