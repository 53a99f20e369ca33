#include "server/sinks/sink_http.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/json/serialize.hpp>
#include <exception>
#include <mutex>

#include "tests/support/scripted_http_server.hpp"

namespace distilld::sinks {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class SinkHttpTest : public ::testing::Test {
  protected:
    HttpReply post(const std::string& url, SinkHttpOptions options = {}) {
        options.field = "/metrics/x";
        options.url = url;
        boost::asio::io_context io{1};
        auto http = make_sink_http(io.get_executor(), options).value();
        HttpReply reply;
        boost::asio::co_spawn(io, http->post("/api", boost::json::object{{"a", 1}}),
                              [&](const std::exception_ptr&, HttpReply got) { reply = std::move(got); });
        io.run();
        return reply;
    }

    /// What every request is answered from now on. One that was given up may still be about to be answered.
    void answer(const test::ScriptedReply& reply) {
        const std::lock_guard lock(mutex_);
        next_ = reply;
    }

  private:
    std::mutex mutex_;
    test::ScriptedReply next_;

  protected:
    test::ScriptedHttpServer server_{[this](const test::SeenRequest&) {
        const std::lock_guard lock(mutex_);
        return next_;
    }};
};

TEST_F(SinkHttpTest, PostsJsonUnderTheUrlsOwnPathWithItsKey) {
    const std::string body = R"({"run":{"x":"y"}})";
    answer({.body = body});
    const HttpReply reply = post(server_.url("/tracking/"), {.bearer = "secret", .headers = {{"X-Extra", "1"}}});
    EXPECT_TRUE(reply.ok());
    EXPECT_EQ(boost::json::serialize(reply.body), body);
    const auto seen = server_.requests().at(0);
    EXPECT_EQ(seen.method + " " + seen.target, "POST /tracking/api");
    EXPECT_EQ(seen.body, R"({"a":1})");
    EXPECT_EQ(seen.headers.at("authorization"), "Bearer secret");
    EXPECT_EQ(seen.headers.at("x-extra"), "1");
    EXPECT_EQ(seen.headers.at("content-type"), "application/json");
}

TEST_F(SinkHttpTest, WhatASecondTryMayMendIsTriedAgain) {
    for (const unsigned status : {408U, 429U, 500U, 502U, 503U}) {
        answer({.status = status});
        const HttpReply reply = post(server_.url());
        EXPECT_FALSE(failure_of(reply).for_good) << status;
        EXPECT_THAT(reply.trouble, HasSubstr("/api: HTTP " + std::to_string(status)));
    }
    for (const unsigned status : {400U, 401U, 403U, 404U, 302U}) {
        answer({.status = status, .body = R"({"error_code":"X","message":"not so"})"});
        const HttpReply reply = post(server_.url(), {.bearer = "secret"});
        EXPECT_TRUE(failure_of(reply).for_good) << status;
        EXPECT_THAT(reply.trouble, HasSubstr("HTTP " + std::to_string(status) + ": not so"));
        EXPECT_THAT(reply.trouble, Not(HasSubstr("secret")));
    }
}

TEST_F(SinkHttpTest, RetryAfterIsHandedOn) {
    answer({.status = 429, .headers = {{"Retry-After", "7"}}});
    EXPECT_EQ(failure_of(post(server_.url())).retry_after, std::chrono::seconds(7));
}

TEST_F(SinkHttpTest, NoAnswerIsTriedAgain) {
    answer({.delay = std::chrono::hours(1)});
    const HttpReply late = post(server_.url(), {.deadline = std::chrono::milliseconds(20)});
    EXPECT_THAT(late.trouble, HasSubstr("no answer within 0.02 s"));
    EXPECT_FALSE(failure_of(late).for_good);
    answer({.reset = true});
    EXPECT_FALSE(failure_of(post(server_.url())).for_good);
    const HttpReply refused = post("http://127.0.0.1:1");
    EXPECT_THAT(refused.trouble, HasSubstr("cannot connect"));
    EXPECT_FALSE(failure_of(refused).for_good);
}

TEST(SinkHttpTexts, AreEncoded) {
    EXPECT_EQ(percent_encoded("a b&c/ü"), "a%20b%26c%2F%C3%BC");
    EXPECT_EQ(basic_authorization("Aladdin", "open sesame"), "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==");  // RFC 7617
    boost::asio::io_context io;
    SinkHttpOptions options;
    options.field = "/metrics/x";
    options.url = "no url";
    EXPECT_THAT(make_sink_http(io.get_executor(), options).error().message,
                HasSubstr("/metrics/x: 'no url' is not a URL"));
}

}  // namespace
}  // namespace distilld::sinks
