"""Infrastructure of all commands and both daemons: settings, options, events, metrics, recordings and HTTP."""
