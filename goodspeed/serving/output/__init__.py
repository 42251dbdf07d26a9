"""Standard output and standard error that block no daemon, and report failed writes."""
