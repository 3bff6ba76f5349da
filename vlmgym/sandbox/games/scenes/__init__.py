"""Tasks about generated scenes of coloured shapes."""
