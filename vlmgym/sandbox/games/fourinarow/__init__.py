"""Four in a row: drop discs to line up four of them."""
