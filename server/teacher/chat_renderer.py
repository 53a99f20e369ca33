"""Renders a chat template as Hugging Face transformers does (utils/chat_template_utils.py): reads one JSON object from
stdin, {"template": …, "variables": {…}}, and writes one to stdout, {"text": …} or {"error": …}. Templates come from
model folders, so that they run in jinja2's sandbox, in a process that can open no file and start no other."""

import contextlib
import datetime
import json
import resource
import sys

MEMORY = 1 << 30
CPU_SECONDS = 5


def answer(said):
    json.dump(said, sys.stdout)
    sys.stdout.flush()


def render(request):
    import jinja2
    import jinja2.ext
    import jinja2.sandbox

    class Generation(jinja2.ext.Extension):
        """{% generation %}: marks what an assistant says for those who train on it."""

        tags = frozenset({"generation"})

        def parse(self, parser):
            line = next(parser.stream).lineno
            body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
            return jinja2.nodes.Scope(body, lineno=line)

    def refuse(message):
        raise jinja2.exceptions.TemplateError(message)

    def to_json(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols]
    )
    environment.filters["tojson"] = to_json
    environment.globals["raise_exception"] = refuse
    environment.globals["strftime_now"] = lambda form: datetime.datetime.now().strftime(form)
    # What jinja2 loads only when it is needed, for a text and for a fault.
    for warm_up in ("{{ [1]|tojson }}{{ strftime_now('%Y') }}", "{{ raise_exception('') }}"):
        with contextlib.suppress(jinja2.exceptions.TemplateError):
            environment.from_string(warm_up).render()
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, 0))
    try:
        return {"text": environment.from_string(request["template"]).render(**request["variables"])}
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}


try:
    answer(render(json.load(sys.stdin)))
except ImportError as missing:
    answer({"missing": str(missing)})
