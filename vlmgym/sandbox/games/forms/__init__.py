"""A form on a screen."""
