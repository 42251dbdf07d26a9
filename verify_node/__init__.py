"""The verify node: verifies all clients' drafts with the target model, and decides how much each may draft next."""
