"""The draft model: drafting on its thread, when a draft ends early, and when a failing model is left alone."""
