"""VQA: answer a question about an image."""
