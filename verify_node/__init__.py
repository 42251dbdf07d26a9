"""The cloud daemon: runs the target model over everybody's drafts and decides who may draft how much next.

Imports nothing of: draft_node, experiments, tests, goodspeed.app.
"""
