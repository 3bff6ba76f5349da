"""What all trainers share and no framework decides: which positions are answered, and what is learned from answers."""
