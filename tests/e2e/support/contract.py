"""Holds what the tests send and what the service answers against api/openapi.yaml, the source of truth of both."""

import functools
import json
import pathlib
import urllib.parse

import jsonschema
import yaml

_FILE = pathlib.Path(__file__).parents[3] / "api" / "openapi.yaml"
_JSON = ("application/json", "application/problem+json")


@functools.cache
def _document():
    return yaml.load(_FILE.read_text(), Loader=yaml.CSafeLoader)


def _resolved(node):
    while "$ref" in node:
        found = _document()
        for name in node["$ref"].removeprefix("#/").split("/"):
            found = found[name.replace("~1", "/").replace("~0", "~")]
        node = found
    return node


@functools.cache
def _validator(text):
    # References of the schema count from the document's root.
    schema = {**json.loads(text), "components": _document()["components"]}
    checker = jsonschema.FormatChecker(formats=["date-time"])
    return jsonschema.Draft202012Validator(schema, format_checker=checker)


def _violations(schema, value):
    errors = _validator(json.dumps(schema)).iter_errors(value)
    return [f"{error.json_path}: {error.message[:400]}" for error in errors]


@functools.cache
def _operation(method, path):
    """The path's template and its operation, with the parameters of both; nothing when there is no such operation."""
    segments = path.split("/")
    # Names go before {parameters}.
    for template in sorted(_document()["paths"], key=lambda it: it.count("{")):
        parts = template.split("/")
        if len(parts) != len(segments):
            continue
        if all((part.startswith("{") and there) or part == there for part, there in zip(parts, segments, strict=True)):
            item = _document()["paths"][template]
            operation = item.get("get" if method == "HEAD" else method.lower())
            if operation is None:
                return template, None, []
            parameters = [_resolved(it) for it in item.get("parameters", []) + operation.get("parameters", [])]
            return template, operation, parameters
    return None, None, []


def check_exchange(method, target, request_headers, request_body, status, headers, body):
    """An AssertionError that names what the contract has otherwise."""
    parts = urllib.parse.urlsplit(target)
    template, operation, parameters = _operation(method, parts.path)
    where = f"{method} {target}: {status}"
    if operation is None:
        expected = (404,) if template is None else (405,)
        # What is judged before the route is found: a foreign host or site, a head that is no head, too many requests.
        judged_before = (400, 401, 403, 408, 413, 414, 421, 429, 431, 501, 503)
        assert status in expected + judged_before, f"{where}, but api/openapi.yaml has no such operation"
        return
    answers = operation["responses"]
    assert str(status) in answers, f"{where} is not among the answers of {operation['operationId']}: {sorted(answers)}"
    answer = _resolved(answers[str(status)])
    _check_answer(where, answer, method, headers, body)
    if status < 300:
        _check_request(where, operation, parameters, parts.query, request_headers, request_body)


def _check_answer(where, answer, method, headers, body):
    content = answer.get("content", {})
    if not content:
        assert not body, f"{where}: a body that the contract does not have"
        return
    kind = (headers.get("Content-Type") or "").split(";")[0].strip()
    assert kind in content, f"{where}: the answer is called {kind!r}, the contract has {sorted(content)}"
    if kind in _JSON and method != "HEAD":
        found = _violations(content[kind]["schema"], json.loads(body))
        assert not found, f"{where}: the answer is not of the contract's form: " + "; ".join(found[:5])
    for name, header in answer.get("headers", {}).items():
        assert not header.get("required") or headers.get(name) is not None, f"{where}: no header {name}"


def _check_request(where, operation, parameters, query, request_headers, request_body):
    known = {it["name"] for it in parameters if it["in"] == "query"}
    for name, _ in urllib.parse.parse_qsl(query, keep_blank_values=True):
        # metadata[key] stands for all of its keys.
        family = name.split("[")[0] + "[key]" if "[" in name else name
        assert name in known or family in known, f"{where}: taken with {name!r}, which the contract does not have"
    if not request_body:
        return
    content = _resolved(operation.get("requestBody", {})).get("content", {})
    lower = {name.lower(): value for name, value in request_headers.items()}
    kind = lower.get("content-type", "").split(";")[0].strip()
    assert kind in content or kind.endswith("+json"), f"{where}: taken as {kind!r}, the contract has {sorted(content)}"
    if kind in _JSON:
        found = _violations(content[kind]["schema"], json.loads(request_body))
        assert not found, f"{where}: taken although the contract refuses it: " + "; ".join(found[:5])
