"""Agents: who reads, decides and remembers. Engines, views, rollouts and the records they leave."""
