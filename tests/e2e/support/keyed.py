"""A service that asks for keys, with clients that have some."""

import json
import re

from support.rest import Rest

KEY = re.compile(r"^dk_[A-Za-z0-9_-]{43}$")


def add_key(distilld, data_dir, name, role):
    added = distilld.run("keys", "add", name, "--role", role, "--data-dir", data_dir)
    key = added.out.strip()
    assert KEY.match(key), added.out
    assert key not in added.err
    return key


class Guarded:
    """A service with a key of each role and two of role submit; `process.url`, and a client a key."""

    def __init__(self, distilld, data_dir, *flags, **options):
        self.data_dir = data_dir
        self.keys = {
            name: add_key(distilld, data_dir, name, role)
            for name, role in {"admin": "admin", "alice": "submit", "bob": "submit", "eve": "read"}.items()
        }
        self.process = distilld.start(
            "serve", "--listen", "127.0.0.1:0", "--data-dir", data_dir, "--slots", "2", *flags, **options
        )
        self.url = self.process.wait_for_line(r"listening on (http://\S+)").group(1)
        self.nobody = Rest(self.url)
        for name, key in self.keys.items():
            setattr(self, name, Rest(self.url, key=key))

    def audit(self, name="audit.jsonl"):
        file = self.data_dir / name
        if not file.exists():
            return []
        return [json.loads(line) for line in file.read_text().splitlines()]
