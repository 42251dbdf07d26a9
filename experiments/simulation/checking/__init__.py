"""What must hold in every world with faults, and random worlds in which that is checked."""
