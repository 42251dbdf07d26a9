"""Makes `smollm2-draft`, the draft model of smollm2, from smollm2's own answers."""
