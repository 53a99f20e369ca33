"""Conversations about a made-up world for scripts/recipes.py: 40 places, four facts of each, asked and answered in
several ways, in the form of ShareGPT; and questions with a prompt of the teacher's own."""

import itertools
import random

PLACES = 40
FACTS = ("capital", "river", "language", "dish")
QUESTIONS = (
    "What is the {fact} of {place}?",
    "Which {fact} does {place} have?",
    "Tell me the {fact} of {place}.",
    "{place}: what is its {fact}?",
)
ANSWERS = ("The {fact} of {place} is {name}.", "It is {name}.", "{place} has {name} as its {fact}.")
STYLES = {
    "Answer in one word.": "{name}.",
    "Be polite.": "With pleasure: the {fact} of {place} is {name}.",
    "Ask back.": "It is {name}. Have you been to {place}?",
}
STYLE = "Be polite."
HELD_OUT = 10  # one in so many questions


def world(source):
    """{(place, fact): name}, with names of two syllables, each used once."""
    syllables = [onset + vowel + end for onset in "bdfgklmnprtv" for vowel in "aeiou" for end in ("", "n", "r")]
    names = ["".join(pair).capitalize() for pair in itertools.product(syllables, repeat=2)]
    drawn = iter(source.sample(names, PLACES * (1 + len(FACTS))))
    return {(place, fact): next(drawn) for place in itertools.islice(drawn, PLACES) for fact in FACTS}


def turns(*contents):
    """A row of ShareGPT; of an odd number of texts, the first is the system's."""
    roles = itertools.cycle(("human", "gpt"))
    who = [next(roles) for _ in contents[len(contents) % 2 :]]
    who = ["system", *who] if len(contents) % 2 else who
    return {"conversations": [{"from": role, "value": text} for role, text in zip(who, contents, strict=True)]}


def conversations(seed=1):
    """(train, held out): a question each, often after an instruction how to answer. The held-out questions are about
    the same facts, in words in which these are not trained on."""
    source = random.Random(seed)
    known = world(source)
    asked = list(itertools.product(known, QUESTIONS))
    source.shuffle(asked)
    kept = len(asked) // HELD_OUT
    rows = ([], [])
    for number, ((place, fact), question) in enumerate(asked):
        for style in (None, None, *STYLES):
            form = source.choice(ANSWERS) if style is None else STYLES[style]
            texts = [text.format(fact=fact, place=place, name=known[place, fact]) for text in (question, form)]
            rows[number < kept].append(turns(*([style] if style else []), *texts))
    for part in rows:
        source.shuffle(part)
    return rows


def with_style(seed=1):
    """(train, held out): questions that only the teacher reads after STYLE; each about one half of the places."""
    source = random.Random(seed)
    rows = ([], [])
    known = world(source)
    places = list(dict.fromkeys(place for place, _ in known))
    for (place, fact), name in known.items():
        for question in QUESTIONS:
            said, answer = (text.format(fact=fact, place=place, name=name) for text in (question, STYLES[STYLE]))
            prompt = [{"role": "user", "content": said}]
            rows[places.index(place) % 2].append(
                {
                    "prompt": prompt,
                    "teacher_prompt": [{"role": "system", "content": STYLE}, *prompt],
                    "completion": [{"role": "assistant", "content": answer}],
                }
            )
    return rows
