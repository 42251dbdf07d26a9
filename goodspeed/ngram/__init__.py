"""n-gram drafts without a model: looks a text's end up in the text itself and in earlier ones, drafts what followed.

Plain Python on arrays: a draft involves a handful of numbers, for which numpy's calls would cost more.
"""
