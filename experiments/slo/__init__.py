"""Parts of `adaserve`, `adaspec`, `slos_serve` and `fleet`: policies, worlds, the papers' claims."""
