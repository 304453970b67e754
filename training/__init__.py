"""Training: what is learned from a trial.

Axes in names and shape comments: B rows, T positions of a row, D decisions, V output rows (vocabulary and native
actions), G members of a group, K turns of an episode, L sampled ids of a turn.
"""
