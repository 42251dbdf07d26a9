"""The parts of all commands and both daemons that are not rules: settings and options, events, metrics, recordings."""
