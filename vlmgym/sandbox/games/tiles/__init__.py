"""Tiles with coloured shapes, shared by Shisen-Sho, Swap and scenes."""
