"""Places on earth without a network: a gazetteer, distances, and how near one place is to another."""
