"""Text to token ids and back, and what else of a checkpoint belongs to its texts: chat template, sampling defaults."""
