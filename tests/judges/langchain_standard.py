"""LangChain's standard tests of a chat model, run in the judges' environment by test_clients.py."""

import os

from langchain_openai import ChatOpenAI
from langchain_tests.integration_tests import ChatModelIntegrationTests

# The form of an answer is kept whatever the model says; that it ends in time takes one that can speak.
SPEAKS = os.environ.get("JUDGED_SPEAKS") == "1"


class TestServed(ChatModelIntegrationTests):
    has_tool_calling = False
    has_tool_choice = False
    has_structured_output = SPEAKS
    supports_json_mode = (
        False  # whether an answer has the keys that the prompt asks for is the model's own affair
    )

    @property
    def chat_model_class(self):
        return ChatOpenAI

    @property
    def chat_model_params(self):
        return {
            "base_url": os.environ["JUDGED_URL"],
            "model": os.environ["JUDGED_MODEL"],
            "api_key": "any",
            "max_tokens": 300 if SPEAKS else 32,
            "temperature": 0,
            "stream_usage": True,
            **({"frequency_penalty": 1.0} if SPEAKS else {}),
        }

    @property
    def structured_output_kwargs(self):
        return {"method": "json_schema"}
