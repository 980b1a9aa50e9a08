"""POST /tokenize and /detokenize."""

from __future__ import annotations

from octavo_gateway.api.chat import ChatService
from octavo_gateway.api.context import ApiContext
from octavo_gateway.api.logprobs import token_text
from octavo_gateway.api.prompts import check_vocabulary
from octavo_gateway.api.tools import tool_use
from octavo_gateway.protocol.chat import ChatCompletionRequest
from octavo_gateway.protocol.errors import invalid
from octavo_gateway.protocol.tokens import Detokenized, DetokenizeRequest, Tokenized, TokenizeRequest


async def tokenize(context: ApiContext, chat: ChatService, request: TokenizeRequest) -> Tokenized:
    """The ids of a prompt or of a conversation, as a request for a completion would have them."""
    context.check_model(request.model)
    if (request.prompt is None) == (request.messages is None):
        raise invalid("prompt", "exactly one of prompt and messages is needed.")
    if request.messages is not None:
        conversation = ChatCompletionRequest(
            messages=request.messages,
            add_generation_prompt=request.add_generation_prompt,
            continue_final_message=request.continue_final_message,
            add_special_tokens=request.add_special_tokens,
            chat_template_kwargs=request.chat_template_kwargs,
            reasoning_effort=request.reasoning_effort,
            tools=request.tools,
        )
        ids = await chat.encode(conversation, tool_use(conversation))
    else:
        text, special = request.prompt or "", request.add_special_tokens is not False
        tokenizer = context.engine.tokenizer
        ids = await context.workers.run(lambda: tokenizer.encode(text, add_special_tokens=special), len(text))
    strings = None
    if request.return_token_strs:
        strings = [token_text(context.engine.tokenizer.token_bytes(i)) for i in ids]
    return Tokenized(
        count=len(ids), max_model_len=context.length.max_model_len, tokens=ids, token_strs=strings
    )


async def detokenize(context: ApiContext, request: DetokenizeRequest) -> Detokenized:
    context.check_model(request.model)
    text = await context.workers.run(lambda: _decode(context, request.tokens))
    return Detokenized(prompt=text)


def _decode(context: ApiContext, tokens: list[int]) -> str:
    check_vocabulary(tokens, context.engine.tokenizer.vocab_size, "tokens")
    return context.engine.tokenizer.decode(tokens)
