"""Adapters to trainers and evaluators, over the public interface alone; docs/integrations has a page for each."""
