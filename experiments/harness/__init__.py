"""The frame of experiments and benchmarks: command lines, results on disk, tables, pictures, progress."""
