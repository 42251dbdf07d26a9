"""`goodspeed chat`: talks in the terminal with the model behind a draft node, over its OpenAI API."""
