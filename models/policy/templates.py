"""Turns prompts into the token ids that the policy reads.

`compact` is the bare problem and a line feed, for policies trained on that.
`chat` is the tokenizer's own chat template, with system prompt and instruction.

A problem may spell out control tokens, such as `<|im_end|>`. They must not end
its message, so they are encoded as the plain characters that they are.
"""

import re
from collections.abc import Mapping
from typing import Literal

from jinja2 import TemplateError
from transformers import PreTrainedTokenizerBase

from models.errors import ModelError
from models.records import Prompt

Template = Literal["compact", "chat"]


def prompt_token_ids(prompt: Prompt, template: Template, tokenizer: PreTrainedTokenizerBase) -> tuple[int, ...]:
    """Token ids of a prompt, up to where the response begins.

    Raises:
        ModelError: the tokenizer's template is missing or refuses the prompt.
    """
    if template == "compact":
        return _encode_plain(compact_text(prompt), tokenizer)
    hidden = {f"\ue000{index}\ue001": token for index, token in enumerate(_control_tokens(tokenizer))}
    text = _render_chat(prompt, tokenizer, hidden)
    return _encode_around(text, tokenizer, hidden)


def compact_text(prompt: Prompt) -> str:
    """The bare problem."""
    return prompt.text + "\n"


def _render_chat(prompt: Prompt, tokenizer: PreTrainedTokenizerBase, hidden: Mapping[str, str]) -> str:
    """The chat template filled in, with stand-ins in place of the contents' control tokens."""
    if tokenizer.chat_template is None:
        raise ModelError(
            "this policy's tokenizer has no chat template: set prompts.template = compact, "
            "or use a chat model in policy.model"
        )
    messages = [{"role": role, "content": content} for role, content in prompt.messages]
    if prompt.instruction:
        last = max(index for index, message in enumerate(messages) if message["role"] == "user")
        messages[last]["content"] += "\n\n" + prompt.instruction
    if prompt.system:
        messages.insert(0, {"role": "system", "content": prompt.system})
    for message in messages:
        for stand_in, token in hidden.items():
            message["content"] = message["content"].replace(token, stand_in)
    try:
        text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    except TemplateError as error:
        raise ModelError(f"the chat template refuses prompt {prompt.prompt_id}: {error}") from error
    assert isinstance(text, str)
    return text


def _control_tokens(tokenizer: PreTrainedTokenizerBase) -> list[str]:
    """Special tokens as they are spelt, longest first, so that none hides inside another."""
    added = tokenizer.added_tokens_decoder.values()
    return sorted((str(token) for token in added if token.special), key=lambda token: (-len(token), token))


def _encode_around(text: str, tokenizer: PreTrainedTokenizerBase, hidden: Mapping[str, str]) -> tuple[int, ...]:
    """Encode a filled template: its own control tokens as such, those of the stand-ins as characters."""
    ids: list[int] = []
    for piece in re.split(f"({'|'.join(hidden)})" if hidden else r"(?!)", text):
        if piece in hidden:
            ids += _encode_plain(hidden[piece], tokenizer)
        else:
            ids += tokenizer.encode(piece, add_special_tokens=False)
    return tuple(ids)


def _encode_plain(text: str, tokenizer: PreTrainedTokenizerBase) -> tuple[int, ...]:
    return tuple(tokenizer.encode(text, add_special_tokens=False, split_special_tokens=True))
