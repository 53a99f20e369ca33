"""api/openapi.yaml, and support/contract.py, which holds every exchange of the other tests against it."""

import json
import pathlib

import openapi_spec_validator
import pytest
import yaml
from support.contract import check_exchange

ROOT = pathlib.Path(__file__).resolve().parents[2]
CONTRACT = ROOT / "api" / "openapi.yaml"


def test_the_contract_is_an_openapi_document():
    openapi_spec_validator.validate(yaml.safe_load(CONTRACT.read_text()))


def problem(status, **changes):
    body = {"type": "about:blank", "title": "t", "status": status, "error": {}}
    body["error"] = {"message": "m", "type": "invalid_request_error", "param": None, "code": None, **changes}
    return json.dumps(body).encode()


@pytest.mark.parametrize(
    "method, target, status, kind, body, fault",
    [
        ("GET", "/v1/jobs/j", 418, "application/problem+json", problem(418), "418 is not among the answers"),
        ("GET", "/v1/jobs/j", 404, "text/html", b"<p>", "is called 'text/html'"),
        ("GET", "/v1/jobs/j", 404, "application/problem+json", problem(404, code=7), "not of the contract's form"),
        ("GET", "/v1/jobs/j", 200, "application/json", b'{"id": "j"}', "not of the contract's form"),
        ("GET", "/v1/jobs?colour=red", 200, "application/json", b"{}", "not of the contract's form"),
        ("GET", "/nowhere", 200, "application/json", b"{}", "no such operation"),
        ("TRACE", "/v1/jobs", 200, "application/json", b"{}", "no such operation"),
    ],
)
def test_what_is_not_in_the_contract_is_noticed(method, target, status, kind, body, fault):
    with pytest.raises(AssertionError, match=fault):
        check_exchange(method, target, {}, None, status, {"Content-Type": kind}, body)


def test_a_parameter_or_body_that_is_taken_beside_the_contract_is_noticed():
    listing = b'{"object": "list", "data": [], "has_more": false, "first_id": null, "last_id": null}'
    answer = (200, {"Content-Type": "application/json"}, listing)
    check_exchange("GET", "/v1/jobs?limit=3", {}, None, *answer)
    with pytest.raises(AssertionError, match="taken with 'colour'"):
        check_exchange("GET", "/v1/jobs?colour=red", {}, None, *answer)
