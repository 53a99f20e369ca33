#!/usr/bin/env python3
"""Turns conversations into JSONL of token ids that distilld trains on, with loss on what the assistant says.

Reads lines {"messages": […]} and {"prompt": […], "completion": […]} (lists of turns, as TRL has them; with "tools" and
"chat_template_kwargs" where the template takes them) and writes {"input_ids": […], "labels": […]}: -100 where nothing
is to be learnt. Rows of ShareGPT ("conversations") and Alpaca ("instruction", "input", "output") become such messages.
Other lines go through as they are; "teacher" is kept. "teacher_prompt", a list of turns beside "prompt", becomes
"teacher_input_ids": with the completion, what the teacher reads instead.

Who renders: the chat template of a tokenizer's folder (needs the Python package transformers), or a model server that
has vLLM's /tokenize (needs nothing). Files ending in .gz and .zst are packed, the latter by the program zstd.

    python3 tools/render_chat.py --tokenizer models/student chat.jsonl chat.ids.jsonl
    python3 tools/render_chat.py --tokenize-url http://127.0.0.1:8000/tokenize chat.jsonl.gz chat.ids.jsonl.gz

With --prompts the lines are prompts of rollouts (`rollout.prompts`): each conversation up to its last answer, and how
the template begins an answer.

A template from elsewhere (--chat-template FILE) reaches the student by --save-tokenizer DIR, which copies the
tokenizer's files there with that template: name DIR as `student.tokenizer` in the spec.
"""

import argparse
import concurrent.futures
import contextlib
import itertools
import json
import os
import re
import shutil
import sys
import time
import urllib.error
import urllib.request

sys.dont_write_bytecode = True  # an installed folder stays as it is
import packed_lines  # noqa: E402

NO_LOSS = -100
ANSWERING = "assistant"
SHAREGPT_ROLES = {"human": "user", "gpt": ANSWERING, **{role: role for role in ("system", "user", ANSWERING, "tool")}}
OWN_FORMS = ("messages", "prompt", "completion", "text", "input_ids")
CHUNK = 64  # lines that are under way at once for each thread that asks a server
PROGRESS_SECONDS = 10
TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "vocab.json",
    "merges.txt",
    "tokenizer.model",
    "added_tokens.json",
)
TEMPLATE_FILE = "chat_template.jinja"


class BadLineError(Exception):
    """What is wrong with a line, in one sentence."""


class Conversation:
    """The turns of a line, and which of them are to be learnt. A prompt ends before its last answer."""

    def __init__(self, line, is_prompt=False):
        messages = line.get("messages")
        if messages is None:
            prompt, completion = line.get("prompt"), line.get("completion", [] if is_prompt else None)
            if not isinstance(prompt, list) or not isinstance(completion, list):
                raise BadLineError('"prompt" and "completion" are to be both lists of turns, or both texts')
            self.turns, self.learnt = prompt + completion, [(len(prompt), len(prompt) + len(completion))]
        else:
            if not isinstance(messages, list):
                raise BadLineError('"messages" is not a list')
            self.turns = messages
            self.learnt = [(n, n + 1) for n, turn in enumerate(messages) if role_of(turn, n) == ANSWERING]
        for number, turn in enumerate(self.turns):
            role_of(turn, number)
        if is_prompt and self.learnt and self.learnt[-1][1] == len(self.turns):
            self.turns = self.turns[: self.learnt[-1][0]]
        if is_prompt and not self.turns:
            raise BadLineError("has no turn before its answer, so there is nothing to answer")
        if not is_prompt and not any(begin < end for begin, end in self.learnt):
            raise BadLineError(f'has no turn of the role "{ANSWERING}", so there is nothing to learn')
        self.from_messages = messages is not None
        self.extra = dict(line.get("chat_template_kwargs") or {})
        self.tools = line.get("tools") or None


def with_messages(line, is_prompt):
    """The line with "messages", if it is a row of ShareGPT or Alpaca and of none of distilld's own forms."""
    if any(name in line for name in OWN_FORMS) or not ("conversations" in line or "instruction" in line):
        return line
    turns = [("system", line["system"])] if line.get("system") else []
    if "conversations" in line:
        if not isinstance(line["conversations"], list):
            raise BadLineError('"conversations" is not a list of turns')
        turns += [sharegpt_turn(turn, number) for number, turn in enumerate(line["conversations"])]
    else:
        history = line.get("history") or []
        if not isinstance(history, list) or not all(isinstance(pair, list) and len(pair) == 2 for pair in history):
            raise BadLineError('"history" is not a list of pairs of instruction and output')
        turns += [turn for said, answer in history for turn in (("user", said), (ANSWERING, answer))]
        turns.append((ANSWERING, line.get("output", "" if is_prompt else None)))
        asked = [line["instruction"], line.get("input") or ""]
        if not all(isinstance(text, str) for text in [*asked, *(content for _, content in turns)]):
            raise BadLineError('"instruction", "input" and "output" are to be texts, and so are "system" and "history"')
        turns.insert(-1, ("user", "\n\n".join(filter(None, asked))))
    return {**line, "messages": [{"role": role, "content": content} for role, content in turns]}


def sharegpt_turn(turn, number):
    """Role and text of a turn."""
    if not isinstance(turn, dict) or not isinstance(turn.get("from"), str) or not isinstance(turn.get("value"), str):
        raise BadLineError(f'turn {number} is not an object with texts "from" and "value"')
    if turn["from"] not in SHAREGPT_ROLES:
        raise BadLineError(f'turn {number} is from "{turn["from"]}", expected one of {", ".join(SHAREGPT_ROLES)}')
    return SHAREGPT_ROLES[turn["from"]], turn["value"]


def role_of(turn, number):
    if not isinstance(turn, dict) or not isinstance(turn.get("role"), str):
        raise BadLineError(f'turn {number} is not an object with a "role"')
    return turn["role"]


def not_a_prefix(number):
    return BadLineError(
        f"turn {number}: what the template makes of the conversation up to here is not how it begins as a whole, so "
        "what the assistant said cannot be told from the rest; take a template with {% generation %}, or --learn last"
    )


class TemplateRenderer:
    """Renders with transformers and a tokenizer's folder. Where the template does not say by {% generation %} what the
    assistant said, that is what a turn adds to the text rendered up to it."""

    def __init__(self, folder, template_file):
        try:
            import transformers  # slow, and not needed with a server
        except ModuleNotFoundError as missing:
            raise SystemExit(
                f"render_chat: the Python package {missing.name} is missing: pip install transformers, or give "
                "--tokenize-url of a server"
            ) from None
        if not os.path.isdir(folder):
            raise SystemExit(f"render_chat: {folder}: is not a folder")
        self.tokenizer = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True)
        if template_file:
            with open(template_file, encoding="utf-8") as file:
                self.tokenizer.chat_template = file.read()
        if not self.tokenizer.chat_template:
            raise SystemExit(f"render_chat: {folder}: has no chat template; --chat-template FILE gives one")
        if not self.tokenizer.is_fast:
            raise SystemExit(f"render_chat: {folder}: has no tokenizer.json")
        template = self.tokenizer.get_chat_template()
        self.marks_answers = re.search(r"\{%-?\s*generation\s*-?%\}", template) is not None
        self.ends = tuple(self.tokenizer.all_special_tokens)

    def save(self, source, folder):
        """The files of the tokenizer's folder as they are, and the template where transformers and vLLM look for it."""
        os.makedirs(folder, exist_ok=True)
        for name in TOKENIZER_FILES:
            with contextlib.suppress(FileNotFoundError, shutil.SameFileError):
                shutil.copyfile(os.path.join(source, name), os.path.join(folder, name))
        with open(os.path.join(folder, TEMPLATE_FILE), "w", encoding="utf-8") as file:
            file.write(self.tokenizer.get_chat_template())

    def text(self, conversation, count, answer_follows=False):
        return self.tokenizer.apply_chat_template(
            conversation.turns[:count],
            tools=conversation.tools,
            add_generation_prompt=answer_follows,
            tokenize=False,
            **conversation.extra,
        )

    def render(self, conversation):
        if self.marks_answers and conversation.from_messages:
            return self.render_marked(conversation)
        whole = self.text(conversation, len(conversation.turns))
        encoded = self.tokenizer(whole, add_special_tokens=False, return_offsets_mapping=True)
        ids, labels = encoded["input_ids"], [NO_LOSS] * len(encoded["input_ids"])
        for begin, end in self.spans(conversation, whole):
            for place, (first, last) in enumerate(encoded["offset_mapping"]):
                # A token that begins in front of the answer and reaches into it is learnt. Some have no width.
                if begin <= first < end or first < begin < last:
                    labels[place] = ids[place]
        return ids, labels

    def prompt(self, conversation):
        text = self.text(conversation, len(conversation.turns), answer_follows=True)
        return self.tokenizer(text, add_special_tokens=False)["input_ids"]

    def spans(self, conversation, whole):
        """From which character to which the answers stand."""
        for first, end in conversation.learnt:
            before = self.text(conversation, first, answer_follows=True)
            behind = self.text(conversation, end)
            if not whole.startswith(before):
                raise not_a_prefix(first)
            if not whole.startswith(behind) or len(behind) < len(before):
                raise not_a_prefix(end - 1)
            # The line break behind <|im_end|> is never generated; one that is the only sign of an end is.
            stripped = behind.rstrip()
            yield len(before), len(stripped if stripped.endswith(self.ends) else behind)

    def render_marked(self, conversation):
        made = self.tokenizer.apply_chat_template(
            conversation.turns,
            tools=conversation.tools,
            tokenize=True,
            return_dict=True,
            return_assistant_tokens_mask=True,
            **conversation.extra,
        )
        ids, mask = made["input_ids"], made["assistant_masks"]
        return ids, [token if learnt else NO_LOSS for token, learnt in zip(ids, mask, strict=True)]


class ServerRenderer:
    """Asks the /tokenize of vLLM, a request for the whole and two for each answer. A server tells ids and no places in
    the text, so an answer is what its turn adds to the ids rendered up to it."""

    def __init__(self, url, model, key, seconds):
        self.url, self.model, self.key, self.seconds = url, model, key, seconds

    def ids(self, conversation, count, answer_follows=False):
        question = {
            "messages": conversation.turns[:count],
            "add_generation_prompt": answer_follows,
            "add_special_tokens": False,
        }
        if self.model:
            question["model"] = self.model
        if conversation.tools:
            question["tools"] = conversation.tools
        if conversation.extra:
            question["chat_template_kwargs"] = conversation.extra
        headers = {"Content-Type": "application/json"}
        if self.key:
            headers["Authorization"] = f"Bearer {self.key}"
        request = urllib.request.Request(self.url, json.dumps(question).encode(), headers)
        try:
            with urllib.request.urlopen(request, timeout=self.seconds) as answer:
                ids = json.load(answer).get("tokens")
        except urllib.error.HTTPError as error:
            said = error.read(2_000).decode(errors="replace")
            if error.code in (400, 422):  # of this conversation
                raise BadLineError(f"{self.url} refused it: {said}") from error
            raise SystemExit(f"render_chat: {self.url}: status {error.code}: {said}") from error
        except (OSError, ValueError, AttributeError) as error:
            raise SystemExit(f"render_chat: {self.url}: {getattr(error, 'reason', error)}") from error
        if not isinstance(ids, list) or not all(type(token) is int and token >= 0 for token in ids):
            raise SystemExit(f'render_chat: {self.url}: its answer has no "tokens" that are a list of ids')
        return ids

    def prompt(self, conversation):
        return self.ids(conversation, len(conversation.turns), answer_follows=True)

    def render(self, conversation):
        whole = self.ids(conversation, len(conversation.turns))
        labels = [NO_LOSS] * len(whole)
        for first, end in conversation.learnt:
            before = self.ids(conversation, first, answer_follows=True)
            behind = whole if end == len(conversation.turns) else self.ids(conversation, end)
            # The last id of a part may reach into what follows in the whole.
            begin, stop = common(whole, before), common(whole, behind)
            if begin < len(before) - 1:
                raise not_a_prefix(first)
            if stop < len(behind) - 1:
                raise not_a_prefix(end - 1)
            labels[begin:stop] = whole[begin:stop]
        return whole, labels


def common(one, other):
    """How many ids both begin with."""
    return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


def rendered(renderer, text, learn):
    """The line that is written for one that was read; the tokens of it, and those to be learnt."""
    try:
        line = json.loads(text)
    except ValueError as error:
        raise BadLineError(f"is not a JSON object: {error}") from error
    if not isinstance(line, dict):
        raise BadLineError("is not a JSON object")
    is_prompt = learn == "none"
    line = with_messages(line, is_prompt)
    if "messages" not in line and not any(isinstance(line.get(name), list) for name in ("prompt", "completion")):
        return text, 0, 0
    conversation = Conversation(line, is_prompt)
    if learn == "last":
        conversation.learnt = conversation.learnt[-1:]
        conversation.from_messages = False  # {% generation %} marks all of them
    of_teacher = None
    if "teacher_prompt" in line and not is_prompt:
        if "messages" in line or not isinstance(line["teacher_prompt"], list):
            raise BadLineError('"teacher_prompt" is to be a list of turns, beside "prompt" and "completion"')
        of_teacher = Conversation({**line, "prompt": line["teacher_prompt"]})
    try:
        ids, labels = (renderer.prompt(conversation), []) if is_prompt else renderer.render(conversation)
        teacher_ids = renderer.render(of_teacher)[0] if of_teacher else None
    except BadLineError:
        raise
    except Exception as error:  # a template raises whatever it likes
        raise BadLineError(f"cannot be rendered: {type(error).__name__}: {error}") from error
    learnt = sum(label != NO_LOSS for label in labels)
    if learnt == 0 and not is_prompt:
        raise BadLineError("comes to no token that is to be learnt")
    made = {"input_ids": list(ids)}
    if learn in ("answers", "last"):
        made["labels"] = labels
    if "teacher" in line and not is_prompt:
        made["teacher"] = line["teacher"]
    if teacher_ids:
        made["teacher_input_ids"] = list(teacher_ids)
    return json.dumps(made, separators=(",", ":")), len(ids), len(ids) if learn == "all" else learnt


def outcomes(renderer, lines, learn, threads):
    """(where, what rendered() gave or its error), in the order of the lines."""

    def outcome(numbered):
        where, text = numbered
        if text is None:
            return where, BadLineError("is not valid UTF-8")
        try:
            return where, rendered(renderer, text, learn)
        except BadLineError as error:
            return where, error

    if threads == 1:
        yield from map(outcome, lines)
        return
    with concurrent.futures.ThreadPoolExecutor(threads) as pool:
        while chunk := list(itertools.islice(lines, CHUNK * threads)):
            yield from pool.map(outcome, chunk)


def convert(options, renderer):
    conversations = tokens = learnt = skipped = 0
    told = time.monotonic()
    part = f"{options.output}.part-{os.getpid()}"
    threads = options.requests if options.tokenize_url else 1
    try:
        with packed_lines.created(part, options.output) as out:
            for where, made in outcomes(renderer, packed_lines.lines_of(options.inputs), options.learn, threads):
                if isinstance(made, BadLineError):
                    if not options.skip_bad:
                        raise SystemExit(f"render_chat: {where}: {made}")
                    print(f"render_chat: left out {where}: {made}", file=sys.stderr)
                    skipped += 1
                    continue
                text, count, of_them = made
                out.write(text.encode() + b"\n")
                conversations, tokens, learnt = conversations + (count > 0), tokens + count, learnt + of_them
                if time.monotonic() - told > PROGRESS_SECONDS:
                    told = time.monotonic()
                    print(f"render_chat: {where}: {conversations} conversations so far", file=sys.stderr)
        os.replace(part, options.output)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(part)
    left_out = f"; {skipped} left out" if skipped else ""
    with_loss = f", {learnt} of them with loss" if options.learn != "none" else ""
    rows = "1 conversation" if conversations == 1 else f"{conversations} conversations"
    print(f"{rows}, {tokens} tokens{with_loss}{left_out}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    by = parser.add_mutually_exclusive_group(required=True)
    by.add_argument("--tokenizer", metavar="FOLDER", help="tokenizer.json and chat template: the student's")
    by.add_argument("--tokenize-url", metavar="URL", help="/tokenize of a vLLM that serves the teacher")
    parser.add_argument("--chat-template", metavar="FILE", help="a Jinja template instead of the folder's")
    parser.add_argument(
        "--save-tokenizer",
        metavar="DIR",
        help="copy the tokenizer with the chat template to DIR, for student.tokenizer",
    )
    parser.add_argument("--model", help="which model of the server")
    parser.add_argument("--api-key-env", metavar="NAME", help="environment variable with the server's key")
    parser.add_argument("--requests", type=int, default=8, help="to the server at once (default 8)")
    parser.add_argument("--timeout", type=float, default=60, help="seconds for a request (default 60)")
    parts = parser.add_mutually_exclusive_group()
    parts.add_argument(
        "--learn",
        choices=("answers", "last", "all"),
        default="answers",
        help="all the assistant says (default), its last turn alone, or every token of the conversation",
    )
    parts.add_argument(
        "--prompts",
        dest="learn",
        action="store_const",
        const="none",
        help="write prompts of rollouts: each conversation up to its last answer",
    )
    parser.add_argument("--skip-bad", action="store_true", help="leave out lines that cannot be rendered, and say so")
    parser.add_argument("inputs", nargs="+", metavar="INPUT")
    parser.add_argument("output", metavar="OUTPUT")
    options = parser.parse_args()
    if options.save_tokenizer and not options.tokenizer:
        parser.error("--save-tokenizer goes with --tokenizer, whose files it copies")
    if options.tokenizer:
        renderer = TemplateRenderer(options.tokenizer, options.chat_template)
    else:
        key = os.environ.get(options.api_key_env, "") if options.api_key_env else ""
        renderer = ServerRenderer(options.tokenize_url, options.model, key, options.timeout)
    try:
        convert(options, renderer)
        if options.save_tokenizer:
            renderer.save(options.tokenizer, options.save_tokenizer)
        elif options.chat_template:
            print(
                "render_chat: the student does not get this chat template: add --save-tokenizer DIR, and set "
                "student.tokenizer to DIR (docs/use-the-student.md)",
                file=sys.stderr,
            )
    except (OSError, EOFError) as error:
        raise SystemExit(f"render_chat: {error}") from error


if __name__ == "__main__":
    main()
