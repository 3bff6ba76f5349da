"""Scenes of coloured shapes: what they are, how they are made, drawn and told."""
