"""Drafts without a model: the end of a text is looked up in it and in earlier ones, and what followed is drafted.

Plain Python on arrays: a draft is made of a handful of numbers, for which numpy's calls would cost more.
"""
