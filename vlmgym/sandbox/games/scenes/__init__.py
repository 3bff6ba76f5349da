"""Synthetic scenes shared by nlvr2 and vqa."""
