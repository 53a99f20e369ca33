#!/usr/bin/env python3
"""Makes the quickstart's dataset: real English text, cut into documents, as JSONL {"text"}.

    quickstart_data.py OUT_DIR --megabytes N --eval-kilobytes N [--text FILE…]

Writes OUT_DIR/train.jsonl and OUT_DIR/eval.jsonl. Without --text it takes what Debian's text packages have installed:
fortunes, the Perl manual and the licence texts. What is held out are short passages of many documents, so that no odd
one among them decides a comparison. No long paragraph of eval.jsonl is in train.jsonl: several of these texts quote
each other.
"""

import argparse
import hashlib
import html
import json
import pathlib
import re
import sys

DOCUMENT_CHARACTERS = 3000
PASSAGE_CHARACTERS = 700
LONG_PARAGRAPH = 60

FORTUNES = "/usr/share/games/fortunes"
PERL = "/usr/share/perl"
LICENCES = "/usr/share/common-licenses"


def from_pod(text):
    """Plain text of Perl's documentation format: headings and items without their commands, codes without brackets."""
    text = re.sub(r"(?ms)^=begin\b.*?^=end\b[^\n]*$", "", text)
    text = re.sub(r"(?m)^=(?:head\d|item)[ \t]*", "", text)
    text = re.sub(r"(?m)^=\w+[^\n]*\n", "", text)
    text = re.sub(r"E<(\w+)>", lambda match: html.unescape(f"&{match.group(1)};"), text)
    text = re.sub(r"[XZ]<[^<>]*>", "", text)
    text = re.sub(r"L<([^<>|]*)\|[^<>]*>", r"\1", text)
    previous = None
    while previous != text:
        previous = text
        text = re.sub(r"[A-Z]<<+ (.*?) >>+", r"\1", text)
        text = re.sub(r"\b[BCFILS]<([^<>]*)>", r"\1", text)
    return text


def read(path):
    return path.read_bytes().decode("utf-8", errors="replace").replace("\r\n", "\n")


def paragraphs_of(text):
    """Its paragraphs; of those longer than a document (changes, code, text without empty lines) the pieces, cut
    at ends of lines, or of words where a line is too long."""
    for paragraph in re.split(r"\n\s*\n", text):
        paragraph = paragraph.strip("\n").rstrip()
        while len(paragraph) > DOCUMENT_CHARACTERS:
            ends = (paragraph.rfind(mark, 1, PASSAGE_CHARACTERS) for mark in "\n ")
            end = next((end for end in ends if end > 0), PASSAGE_CHARACTERS)
            yield paragraph[:end]
            paragraph = paragraph[end:].strip("\n").rstrip()
        if paragraph.strip():
            yield paragraph


def paragraphs_to_documents(text):
    """Runs of paragraphs of about DOCUMENT_CHARACTERS."""
    document = []
    size = 0
    for paragraph in paragraphs_of(text):
        document.append(paragraph)
        size += len(paragraph)
        if size >= DOCUMENT_CHARACTERS:
            yield "\n\n".join(document)
            document, size = [], 0
    if document:
        yield "\n\n".join(document)


def debian_documents():
    for path in sorted(pathlib.Path(LICENCES).glob("*")):
        if path.is_file() and not path.is_symlink():
            yield from paragraphs_to_documents(read(path))
    for path in sorted(pathlib.Path(FORTUNES).glob("*.u8")):
        # Short sayings, divided by lines with a percent sign; some together make a document.
        yield from paragraphs_to_documents("\n\n".join(read(path).split("\n%\n")))
    for path in sorted(pathlib.Path(PERL).glob("*/pod/*.pod")):
        if "delta" not in path.name:  # lists of changes, little prose
            yield from paragraphs_to_documents(from_pod(read(path)))


def order(document):
    """A fixed shuffle that does not depend on where the files lie."""
    return hashlib.sha256(document.encode()).digest()


def long_paragraphs(document):
    return {part for part in document.split("\n\n") if len(part) >= LONG_PARAGRAPH}


def cut_passage(document):
    """(passage, rest): the last paragraphs that come to a passage, and what stands before them."""
    paragraphs = document.split("\n\n")
    first = len(paragraphs)
    while first > 1 and sum(map(len, paragraphs[first:])) < PASSAGE_CHARACTERS:
        first -= 1
    return "\n\n".join(paragraphs[first:]), "\n\n".join(paragraphs[:first])


def split(documents, train_bytes, eval_bytes):
    """(train, eval): eval gets a passage of each of the first documents up to its size, train the rest of these and all
    others, without the long paragraphs that stand in eval."""
    documents = sorted(set(documents), key=order)
    held_out, size = [], 0
    for number, document in enumerate(documents):
        if size >= eval_bytes or number * 2 >= len(documents):
            break
        passage, rest = cut_passage(document)
        if passage and rest:
            held_out.append(passage)
            documents[number] = rest
            size += len(passage.encode())
    seen = set().union(*(long_paragraphs(passage) for passage in held_out))
    train, size = [], 0
    for document in documents:
        if size >= train_bytes:
            break
        document = "\n\n".join(part for part in document.split("\n\n") if part not in seen)
        if document:
            train.append(document)
            size += len(document.encode())
    return train, held_out


def write(path, documents):
    with open(path, "w", encoding="utf-8") as file:
        for document in documents:
            file.write(json.dumps({"text": document}, ensure_ascii=False) + "\n")
    return sum(len(document.encode()) for document in documents)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--megabytes", type=float, required=True)
    parser.add_argument("--eval-kilobytes", type=float, required=True)
    parser.add_argument("--text", type=pathlib.Path, nargs="+", default=[])
    arguments = parser.parse_args()
    documents = []
    for path in arguments.text:
        try:
            documents.extend(paragraphs_to_documents(read(path)))
        except OSError as error:
            sys.exit(f"quickstart: {path}: {error.strerror}")
    if not arguments.text:
        documents = list(debian_documents())
    train, held_out = split(documents, arguments.megabytes * 1e6, arguments.eval_kilobytes * 1e3)
    sizes = [sum(len(document.encode()) for document in part) for part in (train, held_out)]
    if sizes[0] < 50_000 or not held_out:
        sys.exit(f"quickstart: {sum(sizes)} bytes of text are too few: some 100 KB in several paragraphs are needed")
    arguments.out.mkdir(parents=True, exist_ok=True)
    write(arguments.out / "train.jsonl", train)
    write(arguments.out / "eval.jsonl", held_out)
    print(f"{len(train)} documents, {sizes[0]} bytes to train on; {len(held_out)} passages, {sizes[1]} bytes held out")


if __name__ == "__main__":
    main()
