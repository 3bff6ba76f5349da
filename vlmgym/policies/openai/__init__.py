"""The `openai` policy: models behind an OpenAI-compatible server (OpenAI, vLLM, llama.cpp and others)."""
