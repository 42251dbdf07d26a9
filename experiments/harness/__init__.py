"""What experiments, benchmarks and notebooks share: command lines, results on disk, tables, pictures, progress."""
