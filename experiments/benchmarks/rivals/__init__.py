"""What users would run instead of GoodSpeed, each in a process of its own, with an environment of its own."""
