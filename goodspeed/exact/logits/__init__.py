"""Changes rows of logits before a token is drawn: bias, penalties, masks and min_p; top-k and top-p."""
