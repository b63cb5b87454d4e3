"""Takes problems out of what was wrapped around them: chat templates, and instructions on how to answer.

Only what is known is taken off, so that one problem has one `prompt_id` in
every file that holds it, and the rest of a text is never touched.
"""

import re
from collections.abc import Iterator

from storage.prompts import Message, canonical

SUFFIXES = (
    "Let's think step by step and output the final answer within \\boxed{}.",
    'Let\'s think step by step and output the final answer after "####".',
    "Let's think step by step.",
    "Please reason step by step, and put your final answer within \\boxed{}.",
    "Please reason step by step, and put your final answer within \\boxed{{}}.",
    "Please think step by step, and put your final answer within \\boxed{}.",
    "Please put your final answer within \\boxed{}.",
    "Put your final answer within \\boxed{}.",
    "Present the answer in LaTex format: \\boxed{Your answer}",
    'Remember to put your answer on its own line after "Answer:".',
)
"""Instructions that published data sets end their problems with; `prompts.instruction` keeps them."""

_MARKED_TURN = re.compile(
    r"<\|im_start\|>\s*(?P<role>\w+)\n(?P<text>.*?)(?:<\|im_end\|>\s*|(?=<\|im_start\|>)|\Z)"
    r"|(?:<\|begin_of_text\|>)?<\|start_header_id\|>(?P<role3>\w+)<\|end_header_id\|>\s*(?P<text3>.*?)"
    r"(?:<\|eot_id\|>\s*|(?=<\|start_header_id\|>)|\Z)",
    re.DOTALL,
)
_WRAPPINGS = tuple(
    re.compile(pattern, re.DOTALL)
    for pattern in (
        r"\A\s*(?:system\n.*?\n)?user\n+(?P<user>.*?)\n?(?:assistant|model)\n*(?:<think>\s*)?\Z",
        r"\A(?:<bos>)?<start_of_turn>user\n(?P<user>.*?)<end_of_turn>\n<start_of_turn>model\s*\Z",
        r"\A\s*(?:<s>)?\s*\[INST\](?P<user>.*?)\[/INST\]\s*\Z",
        r"\A.*?<｜User｜>(?P<user>.*?)<｜Assistant｜>(?:<think>\s*)?\Z",
        r"\A(?P<user>.*?)<think>\s*\Z",
    )
)
"""One question in the template of Qwen, Llama or Gemma without its special tokens; of Gemma; Mistral; DeepSeek."""
_CONVERSATION = re.compile(
    r"\A(?P<system>A conversation between [Uu]ser and [Aa]ssistant\..*?)\s*\bUser: (?P<user>.*?)"
    r"\s*\bAssistant:(?:\s*<think>)?\s*\Z",
    re.DOTALL,
)
_TOKEN = re.compile(r"<\|[a-zA-Z0-9_]+\|>")
_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
_HALF_PAIR = re.compile("[\ud800-\udfff]")
_INVISIBLE = re.compile("[\u00a0\u00ad\u200b-\u200f\u2028\u2029\u202a-\u202e\u2060-\u2064\ufeff]")
_EMPTY = re.compile(f"(?:\\s|{_INVISIBLE.pattern})*")


def split_turns(text: str) -> list[Message] | None:
    """The messages of a text that is a filled-in chat template; None when it is none.

    A turn of the assistant that was left open is where the response begins, and is left out.
    """
    conversation = _CONVERSATION.fullmatch(text)
    if conversation:
        return [("system", conversation["system"]), ("user", conversation["user"])]
    if "<|im_start|>" not in text and "<|start_header_id|>" not in text:
        return None
    turns = list(_MARKED_TURN.finditer(text))
    if not turns or _uncovered(text, turns):
        return None
    messages = [(turn["role"] or turn["role3"], turn["text"] if turn["role"] else turn["text3"]) for turn in turns]
    return messages[:-1] if messages[-1][0] == "assistant" else messages


def _uncovered(text: str, turns: list[re.Match[str]]) -> bool:
    """Whether something but white space stands outside the turns."""
    ends = [0, *(turn.end() for turn in turns)]
    starts = [*(turn.start() for turn in turns), len(text)]
    return any(text[end:start].strip() for end, start in zip(ends, starts, strict=True))


def split_instruction(text: str) -> tuple[str, str]:
    """A problem and the known instruction behind it, which is empty when there is none."""
    stripped = text.rstrip()
    for suffix in SUFFIXES:
        if stripped.endswith(suffix) and len(stripped) > len(suffix):
            return stripped.removesuffix(suffix).rstrip(), suffix
    return text, ""


def readings(text: str) -> Iterator[list[Message]]:
    """What problem a logged prompt may be, likeliest first: as it stands, and with known wrappings taken off.

    Logs hold prompts as the model read them, often with the special tokens of
    the template dropped, which leaves the bare names of the roles. A reading
    counts when the dataset has a prompt of just this text, so a wrong one does
    no harm.
    """
    yield [("user", text)]
    turns = split_turns(text)
    if turns:
        yield turns
        yield _without_instruction(turns)
    for wrapping in _WRAPPINGS:
        match = wrapping.fullmatch(text)
        if match:
            yield [("user", match["user"])]
            yield _without_instruction([("user", match["user"])])
    yield _without_instruction([("user", text)])


def _without_instruction(messages: list[Message]) -> list[Message]:
    """The messages that ask for something; the last loses a known instruction."""
    asked = [(role, text) for role, text in messages if role != "system"]
    return [*asked[:-1], (asked[-1][0], split_instruction(asked[-1][1])[0])] if asked else []


def text_fault(text: str) -> str:
    """Why a text cannot be used; empty when it can."""
    if is_empty(text):
        return "empty"
    control = _CONTROL.search(text)
    if control:
        return f"control character U+{ord(control[0]):04X} at {control.start()}: the text was damaged on its way"
    if has_half_pair(text):
        return "half a surrogate pair, which is no Unicode text"
    token = _TOKEN.search(text)
    return f"chat template token {token[0]} in a text that is no known template" if token else ""


def has_half_pair(text: str) -> bool:
    """Whether a text holds half a surrogate pair, which UTF-8 cannot write."""
    return _HALF_PAIR.search(text) is not None


def text_notes(text: str) -> list[str]:
    """What is worth a look in a text, and is kept or does not matter."""
    notes = []
    if "\r" in text:
        notes.append("carriage returns, stored as line feeds")
    if _INVISIBLE.search(text):
        notes.append("invisible characters or hard spaces, kept")
    return notes


def is_empty(text: str) -> bool:
    """Whether nothing can be seen of a text."""
    return _EMPTY.fullmatch(text) is not None


def clean(text: str) -> str:
    """A text as it is stored: NFC, line feeds only, stripped."""
    return canonical(text)
