"""The embedded model family: a target, two drafts, one tokenizer, and the recipe that made them."""
