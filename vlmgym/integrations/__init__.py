"""Adapters for trainers and evaluators, built on the public interface only; docs/integrations has a page for each."""
