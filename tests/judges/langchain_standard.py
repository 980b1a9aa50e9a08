"""LangChain's standard tests of a chat model, run in the judges' environment by test_clients.py."""

import os

from langchain_openai import ChatOpenAI
from langchain_tests.integration_tests import ChatModelIntegrationTests


class TestServed(ChatModelIntegrationTests):
    has_tool_calling = False
    has_tool_choice = False
    has_structured_output = False
    supports_json_mode = False

    @property
    def chat_model_class(self):
        return ChatOpenAI

    @property
    def chat_model_params(self):
        return {
            "base_url": os.environ["JUDGED_URL"],
            "model": os.environ["JUDGED_MODEL"],
            "api_key": "any",
            "max_tokens": 32,
            "temperature": 0,
            "stream_usage": True,
        }
