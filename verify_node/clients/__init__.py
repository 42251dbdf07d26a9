"""What the verify node knows of each client over all its sessions: acceptance, goodput, answer times, suspicion."""
