"""The document at "/": what of it needs no browser."""

import gzip


def test_the_document_is_whole_and_locked(module_service):
    rest = module_service.rest
    answer = rest.get("/")
    assert answer.status == 200
    policy = answer.headers["Content-Security-Policy"]
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe" not in policy
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert answer.headers["Referrer-Policy"] == "no-referrer"
    packed = rest.get("/", headers={"Accept-Encoding": "gzip"})
    assert packed.headers["Content-Encoding"] == "gzip"
    assert gzip.decompress(packed.body) == answer.body
    again = rest.get("/", headers={"If-None-Match": answer.headers["ETag"]})
    assert (again.status, again.body) == (304, b"")
    head = rest.request("HEAD", "/")
    assert (head.status, head.body) == (200, b"")
    assert int(head.headers["Content-Length"]) == len(answer.body)
    # A page of another name that leads here (DNS rebinding) does not get it.
    assert rest.get("/", headers={"Host": "evil.example"}).status == 421
    assert rest.post("/").status == 405
