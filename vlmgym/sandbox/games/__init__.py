"""Games: a file each, or a folder with several parts, and what some of them share (choices, lines, search, tiles)."""
