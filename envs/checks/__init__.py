"""The single checks of the conformance kit, grouped by what they examine; ``peira.envs.check`` runs them."""
