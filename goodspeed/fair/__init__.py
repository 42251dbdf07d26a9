"""The mathematics of fairness: estimates of each client, models of a round's time, and draft lengths."""
