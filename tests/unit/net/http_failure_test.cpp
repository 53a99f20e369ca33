#include "net/http_failure.hpp"

#include <gtest/gtest.h>

#include <cstring>

#include "base/utf8.hpp"
#include "tests/unit/pipeline/teacher/teacher_fixture.hpp"

namespace distilld {
namespace {

using namespace std::chrono_literals;

FetchError failure(unsigned status, const std::string& body) {
    HttpResponse response;
    response.status = status;
    response.body = std::make_shared<BodyBuffer>();
    response.body->resize(body.size());
    std::memcpy(response.body->data(), body.data(), body.size());
    return failure_of_status("http://h/", response);
}

TEST(HttpFailure, ClassifiesStatuses) {
    EXPECT_EQ(failure(429, "").kind, FailureKind::overloaded);
    EXPECT_EQ(failure(503, "").kind, FailureKind::overloaded);
    EXPECT_EQ(failure(500, "").kind, FailureKind::server_error);
    EXPECT_EQ(failure(502, "").kind, FailureKind::connection);
    EXPECT_EQ(failure(504, "").kind, FailureKind::timeout);
    EXPECT_EQ(failure(408, "").kind, FailureKind::server_error);
    EXPECT_EQ(failure(400, "").kind, FailureKind::rejected);
    EXPECT_EQ(failure(401, "").kind, FailureKind::rejected);
    EXPECT_EQ(failure(404, "").kind, FailureKind::not_found);
    EXPECT_EQ(failure(302, "").kind, FailureKind::rejected);
}

TEST(HttpFailure, AModelThatIsNotThereYetIsNotARefusal) {
    for (const char* recorded : {"triton-err-model.txt", "kserve-err-model.json", "mlserver-err-model.json"}) {
        EXPECT_EQ(failure(404, test::read_fixture(recorded)).kind, FailureKind::not_found) << recorded;
        EXPECT_EQ(failure(400, test::read_fixture(recorded)).kind, FailureKind::not_found) << recorded;
    }
    EXPECT_EQ(failure(400, R"({"error":"Model teacher is not ready yet."})").kind, FailureKind::not_found);
    EXPECT_EQ(failure(400, R"({"error":"Request for unknown model: 'teacher' has no available versions"})").kind,
              FailureKind::not_found);
    EXPECT_EQ(failure(400, R"({"error":{"message":"Got LoRA adapter that has never been loaded: a\nAll loaded )"
                           R"(adapters: dict_keys([])."}})")
                  .kind,
              FailureKind::not_found);
    EXPECT_EQ(failure(400, R"({"error":"model 'teacher' takes no input 'ids'"})").kind, FailureKind::rejected);
    EXPECT_EQ(failure(403, R"({"error":"model not found"})").kind, FailureKind::rejected);
}

TEST(HttpFailure, FindsTheServersWords) {
    EXPECT_EQ(failure(500, test::read_fixture("triton-err-oov.txt")).message,
              "http://h/: HTTP 500: token id out of vocabulary");
    EXPECT_EQ(failure(422, test::read_fixture("mlserver-err-dtype-bad.json")).message.substr(0, 71),
              "http://h/: HTTP 422: body.inputs.0.datatype: Input should be 'BOOL', 'U");
    EXPECT_EQ(failure(500, test::read_fixture("mlserver-err-binary-in.txt")).message,
              "http://h/: HTTP 500: Internal Server Error");
    EXPECT_EQ(error_text(R"({"error":{"message":"too long","type":"x"}})"), "too long");
    EXPECT_EQ(
        error_text(R"({"rid":null,"success":false,"error_message":"LoRA is not enabled.","loaded_adapters":null})"),
        "LoRA is not enabled.");
    EXPECT_EQ(error_text(R"({"detail":"Not Found"})"), "Not Found");
    EXPECT_EQ(error_text(R"({"unknown":1})"), R"({"unknown":1})");
    EXPECT_EQ(error_text("\n  two\nlines  \n"), "two lines");
    EXPECT_EQ(error_text(std::string(1000, 'x')).size(), 300U);
}

// Latin-1 in JSON, a binary answer, and a character that the bound on the length would cut in two.
TEST(HttpFailure, SaysInUtf8WhatAServerSaysInAnotherCode) {
    EXPECT_EQ(failure(400, "{\"error\":\"mod\xE8le absent\"}").message, "http://h/: HTTP 400: mod\uFFFDle absent");
    EXPECT_EQ(failure(400, "\xFF\xFE\x80 no").message, "http://h/: HTTP 400: \uFFFD\uFFFD\uFFFD no");
    const std::string long_text = error_text(std::string(1000, '\xE8'));
    EXPECT_EQ(to_valid_utf8(long_text), long_text);
    EXPECT_LE(long_text.size(), 300U);
}

TEST(HttpFailure, NamesTheFieldOfTheKey) {
    for (const unsigned status : {401U, 403U}) {
        EXPECT_EQ(failure(status, R"({"error":"Unauthorized"})").message,
                  "http://h/: HTTP " + std::to_string(status) +
                      ": Unauthorized (the key comes from /teacher/api_key_env or /teacher/api_key_file)");
    }
    EXPECT_EQ(failure(404, "").message, "http://h/: HTTP 404");
}

TEST(HttpFailure, ReadsRetryAfter) {
    const auto date = parse_http_date("Sun, 06 Nov 1994 08:49:37 GMT");
    ASSERT_TRUE(date);
    EXPECT_EQ(*date, 784111777);
    EXPECT_EQ(parse_retry_after("2", 0), 2000ms);
    EXPECT_EQ(parse_retry_after("0.5", 0), 500ms);
    EXPECT_EQ(parse_retry_after("Sun, 06 Nov 1994 08:49:37 GMT", *date - 7), 7000ms);
    EXPECT_EQ(parse_retry_after("Sun, 06 Nov 1994 08:49:37 GMT", *date + 7), 0ms);
    EXPECT_EQ(parse_retry_after("soon", 0), std::nullopt);
    EXPECT_EQ(parse_retry_after("-1", 0), std::nullopt);
    EXPECT_EQ(parse_retry_after("nan", 0), std::nullopt);
    EXPECT_EQ(parse_retry_after("1e300", 0), 24h);
}

}  // namespace
}  // namespace distilld
