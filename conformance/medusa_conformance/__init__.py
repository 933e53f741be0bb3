"""Point the oracles at an engine: the line, the runner, the strategies, the command line."""
