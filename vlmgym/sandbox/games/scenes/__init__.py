"""Synthetic scenes of coloured shapes, shared by nlvr2 and vqa."""
