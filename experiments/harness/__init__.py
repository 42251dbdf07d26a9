"""The frame of experiments, benchmarks and notebooks: command lines, results on disk, tables, pictures, progress."""
