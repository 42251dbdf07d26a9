"""What the verify node knows of one generation: its text, its draft, its estimates, and what it refuses."""
