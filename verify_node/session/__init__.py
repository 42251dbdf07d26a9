"""One generation on the verify node: its text, phase, drafts, estimates, and deadline."""
