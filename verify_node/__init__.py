"""The cloud daemon: runs the target model over everybody's drafts and decides who may draft how much next.

Knows nothing about how a draft node drafts; the two meet in `goodspeed/wire` only.

Imports nothing of: draft_node, experiments, tests, goodspeed.app.
"""
