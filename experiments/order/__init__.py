"""Parts of `laps_sd`: rival orders, runs of the queueing model, the paper's claims."""
