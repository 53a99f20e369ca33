"""Bracket words to end for scripts/on_policy_task.py: prompts, answers, and how answers are judged.

A prompt is a beginning of a bracket word and "=". Many answers are right: each may open further brackets, as long as it
closes everything from the inside and then ends: "([<>=" and "])", or "]<[]>)".
"""

import random

KINDS = {"(": ")", "[": "]"}
END = 256  # the byte tokenizer's end of text
MAX_BRACKETS = 10  # of a prompt
MAX_OPEN = 5
OPENS = 0.3  # chance that an answer opens one more
MAX_ANSWER = 14  # tokens


def prompt(source):
    """A random prompt and one of its answers."""
    while True:
        text, opened = "", []
        for _ in range(source.randrange(4, MAX_BRACKETS + 1)):
            if opened and (len(opened) == MAX_OPEN or source.random() < 0.4):
                text += KINDS[opened.pop()]
            else:
                opened.append(source.choice([*KINDS]))
                text += opened[-1]
        if len(opened) >= 2:
            return text + "=", ending(opened, source)


def ending(opened, source):
    text = ""
    while opened:
        room = MAX_ANSWER - 1 - len(text) > len(opened) + 1
        if room and len(opened) < MAX_OPEN and source.random() < OPENS:
            opened.append(source.choice([*KINDS]))
            text += opened[-1]
        else:
            text += KINDS[opened.pop()]
    return text


def is_right(asked, answer):
    """Whether it is one of the answers to this prompt."""
    opened = []
    for letter in asked.removesuffix("=") + answer:
        if letter in KINDS:
            opened.append(letter)
        elif not opened or letter != KINDS[opened.pop()]:
            return False
    return not opened


def examples(count, seed, besides=()):
    """Different prompts with an answer each, none of them in `besides`."""
    source = random.Random(seed)
    seen, found = {asked for asked, _ in besides}, []
    while len(found) < count:
        asked, answer = prompt(source)
        if asked not in seen:
            seen.add(asked)
            found.append((asked, answer))
    return found


def with_slips(asked, answer, share, source):
    """A row of ids and labels: a share of the brackets that are read is wrong, what is to be written is right."""
    read = [
        source.choice([closing for closing in KINDS.values() if closing != bracket])
        if bracket not in KINDS and source.random() < share
        else bracket
        for bracket in answer
    ]
    if read == list(answer):
        return {"prompt": asked, "completion": answer}
    ids = list((asked + "".join(read)).encode())
    return {"input_ids": [*ids, END], "labels": [*[-100] * len(asked), *answer.encode(), END]}
