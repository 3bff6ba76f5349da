"""Pages that open from disk: reports, comparisons, leaderboards and the gallery."""
