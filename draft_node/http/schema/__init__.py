"""What each API's bodies are: pydantic schemas of requests and answers, and of errors."""
