"""Service level objectives (SLOs): latency bounds of texts, admission control, and attainment.

Numbers in, decisions out: every time is an argument.
"""
