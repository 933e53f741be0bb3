"""Point the oracles at an engine: the line, the runner, the strategies, the command line."""

SEED, MAX_EXAMPLES, TIMEOUT = 0, 20, 30.0
"""What a run has where nobody says otherwise: the seed of the drawn coordinates, how many of them,
and the seconds that an engine has for each reply."""
