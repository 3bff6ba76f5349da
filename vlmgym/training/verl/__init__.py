"""Training on many GPUs with verl; docs/integrations/verl.md."""
