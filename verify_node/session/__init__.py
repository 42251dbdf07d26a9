"""One generation on the verify node: its text, draft, estimates, and refusals."""
