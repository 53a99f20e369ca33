"""Fenced blocks of Markdown pages: which are run, and whether what a page quotes is what was printed.

```sh                 is run
```sh not-run: WHY    is not, and says why
```json               a job spec, or a part of one, that the service must take
```                   below an sh block: what that printed. A number there stands for any number, an id for any id,
                      and … for anything; each line must be there, in this order.
"""

import dataclasses
import re

NOT_RUN = "not-run:"
NUMBER = r"(?:(?<!\w)[-+])?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?"
# Ids and hashes: hexadecimal, and long enough to be no word.
HEXADECIMAL = r"\b(?=[0-9a-f]*\d)[0-9a-f]{12,}\b"


@dataclasses.dataclass
class Block:
    language: str
    words: str  # what stands behind the language
    text: str
    line: int  # of the opening fence
    output: str | None = None  # of an sh block: what the page says that it prints

    @property
    def is_run(self):
        return self.language == "sh" and not self.words

    @property
    def reason(self):
        """Why an sh block is not run; None where it is."""
        return self.words.removeprefix(NOT_RUN).strip() if self.words.startswith(NOT_RUN) else None


def blocks_of(text):
    """The fenced blocks of a page. An output belongs to the sh block before it, unless a heading is between them."""
    made, shell, fence, lines = [], None, None, text.split("\n")
    for number, line in enumerate(lines, 1):
        if fence is not None:
            if line.strip() == fence:
                made.append(block)
                fence = None
                if block.language == "sh":
                    shell = block
                elif block.language == "" and shell is not None:
                    shell.output = block.text
                    shell = None
                else:
                    shell = None
            else:
                block.text += line + "\n"
        elif opening := re.match(r"\s*(`{3,})(\w*) *(.*)$", line):
            fence = opening.group(1)
            block = Block(opening.group(2), opening.group(3).strip(), "", number)
        elif line.startswith("#"):
            shell = None
    assert fence is None, f"line {block.line}: the block has no end"
    return made


def _pattern(piece):
    """What a piece of a line may have been when it was printed."""
    made = ""
    for token in re.split(f"({HEXADECIMAL}|{NUMBER}|\\s+)", piece):
        if re.fullmatch(HEXADECIMAL, token):
            made += r"[0-9a-f]{12,}"
        elif re.fullmatch(NUMBER, token):
            made += NUMBER
        elif token.isspace():
            made += r"\s*"
        else:
            made += re.escape(token)
    return made


def missing(expected, printed):
    """The first piece of the expected output that was not printed behind those before it; None when all were."""
    place = 0
    for piece in re.split(r"…|\n", expected):
        piece = piece.strip()
        if not piece:
            continue
        found = re.compile(_pattern(piece)).search(printed, place)
        if found is None:
            return piece
        place = found.end()
    return None
