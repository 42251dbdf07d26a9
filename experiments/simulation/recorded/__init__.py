"""Recorded texts and drafts, and worlds that replay them."""
