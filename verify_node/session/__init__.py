"""One generation as the verify node knows it: its text, draft, estimates, and refusals."""
