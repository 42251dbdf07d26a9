"""The cloud daemon: runs the target model over everybody's drafts and decides who may draft how much next."""
