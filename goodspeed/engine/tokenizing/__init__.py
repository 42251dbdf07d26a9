"""Text to token ids and back; a checkpoint's chat template and sampling defaults."""
