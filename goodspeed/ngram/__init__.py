"""n-gram drafts without a model: looks up a text's end in the text itself and in earlier texts, and drafts the tokens
that followed there.

Plain Python on arrays: a draft involves a handful of numbers, for which numpy's calls would cost more.
"""
