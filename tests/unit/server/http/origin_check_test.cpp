#include "server/http/origin_check.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/asio/io_context.hpp>
#include <string>

#include "tests/unit/server/http/raw_client.hpp"
#include "tests/unit/server/http/server_fixture.hpp"

namespace distilld::http {
namespace {

namespace asio = boost::asio;
using test::HttpServer;
using test::RawClient;
using ::testing::HasSubstr;
using ::testing::StartsWith;

struct Case {
    std::string method = "POST";
    http::Headers headers{};
    const Route* route = nullptr;
    bool has_body = false;
    std::string authority{};
};

unsigned judge(const OriginCheck& origin_check, const Case& one) {
    http::Request request;
    request.method = one.method;
    request.headers = one.headers;
    const auto problem = origin_check.refusal({request, one.authority, one.route, one.has_body});
    return problem ? problem->status : 200;
}

unsigned judge_host(const OriginCheck& origin_check, const std::string& host) {
    return judge(origin_check, {.method = "GET", .headers = {{"Host", host}}});
}

OriginCheck origin_check_of(const std::string& listen, std::vector<std::string> hosts = {}) {
    boost::system::error_code no_address;
    auto bound = asio::ip::make_address(listen, no_address);
    if (no_address) {
        bound = asio::ip::make_address("127.0.0.1");
    }
    return OriginCheck::make(listen, bound, hosts).value();
}

TEST(OriginCheck, KnowsLoopbackAndTheNamesItWasGiven) {
    const auto origin_check = origin_check_of("127.0.0.1", {"Jobs.example", "10.0.0.7", "fd00::7"});
    for (const char* host :
         {"localhost", "LOCALHOST:9", "127.0.0.1:8500", "127.9.9.9", "[::1]", "[::1]:8500", "[0:0::1]:1",
          "jobs.example", "jobs.EXAMPLE.:443", "10.0.0.7:1", "[fd00::7]:1", "[fd00:0:0::7]"}) {
        EXPECT_EQ(judge_host(origin_check, host), 200U) << host;
    }
    for (const char* host : {"evil.example", "localhost.evil.example", "jobs.example.evil.example", "10.0.0.8",
                             "0.0.0.0:8500", "[fd00::8]", "", ":8500", "127.0.0.1:x", "127.0.0.1:0", "127.0.0.1:70000",
                             "user@localhost", "127.1", "0x7f000001", "localhost/", "a b"}) {
        EXPECT_EQ(judge_host(origin_check, host), 421U) << host;
    }
    EXPECT_EQ(judge_host(origin_check_of("named-interface"), "named-interface:1"), 200U);
    EXPECT_EQ(judge_host(origin_check_of("192.168.1.2"), "192.168.1.2:1"), 200U);
    EXPECT_EQ(judge_host(origin_check_of("192.168.1.2"), "192.168.1.3"), 421U);
}

TEST(OriginCheck, TakesAnyAddressButNoNameWhenItListensOnAll) {
    for (const char* listen : {"0.0.0.0", "::"}) {
        const auto origin_check = origin_check_of(listen, {"jobs.example"});
        for (const char* host : {"10.1.2.3:8500", "[fe80::1]:8500", "localhost", "jobs.example:30080"}) {
            EXPECT_EQ(judge_host(origin_check, host), 200U) << host;
        }
        EXPECT_EQ(judge_host(origin_check, "rebound.example:8500"), 421U);
    }
}

TEST(OriginCheck, LetsProbesUseAnyName) {
    const auto origin_check = origin_check_of("127.0.0.1");
    Route probe;
    probe.any_host = true;
    EXPECT_EQ(judge(origin_check, {.method = "GET", .headers = {{"Host", "service.namespace.svc"}}, .route = &probe}),
              200U);
    // Not what changes something, whoever asks.
    EXPECT_EQ(judge(origin_check, {.headers = {{"Host", "x"}, {"Sec-Fetch-Site", "cross-site"}}, .route = &probe}),
              403U);
}

TEST(OriginCheck, JudgesEveryNameOfARequest) {
    const auto origin_check = origin_check_of("127.0.0.1");
    EXPECT_EQ(judge(origin_check, {.method = "GET", .headers = {{"Host", "localhost"}, {"host", "evil.example"}}}),
              421U);
    EXPECT_EQ(judge(origin_check, {.method = "GET", .headers = {{"Host", "localhost"}}, .authority = "evil.example"}),
              421U);
    EXPECT_EQ(judge(origin_check, {.method = "GET", .headers = {{"Host", "localhost"}}, .authority = "localhost:1"}),
              200U);
    EXPECT_EQ(judge(origin_check, {.method = "GET", .headers = {}}), 200U);  // HTTP/1.0
}

TEST(OriginCheck, RefusesWhatAPageOfAnotherSiteSends) {
    const auto origin_check = origin_check_of("0.0.0.0", {"jobs.example"});
    const auto post = [&origin_check](const std::string& host, http::Headers more) {
        more.emplace_back("Host", host);
        return judge(origin_check, {.headers = std::move(more)});
    };
    const std::string local = "127.0.0.1:8500";
    EXPECT_EQ(post(local, {}), 200U);
    EXPECT_EQ(post(local, {{"Origin", "http://127.0.0.1:8500"}}), 200U);
    EXPECT_EQ(post("jobs.example", {{"Origin", "https://JOBS.example"}}), 200U);  // behind a proxy that ends TLS
    EXPECT_EQ(post("jobs.example:80", {{"Origin", "http://jobs.example"}}), 200U);
    EXPECT_EQ(post(local, {{"Sec-Fetch-Site", "none"}}), 200U);
    EXPECT_EQ(post(local, {{"Sec-Fetch-Site", "same-origin"}, {"Origin", "http://127.0.0.1:8500"}}), 200U);
    for (const char* origin : {"http://evil.example", "https://127.0.0.1", "http://127.0.0.1:3000", "http://127.0.0.1",
                               "http://localhost:8500", "http://6.6.6.6:8500", "http://jobs.example:8500", "null", "",
                               "file://", "127.0.0.1:8500"}) {
        EXPECT_EQ(post(local, {{"Origin", origin}}), 403U) << origin;
    }
    for (const char* site : {"cross-site", "same-site", "", "Same-Origin"}) {
        EXPECT_EQ(post(local, {{"sec-fetch-site", site}}), 403U) << site;
    }
    EXPECT_EQ(post(local, {{"Sec-Fetch-Site", "none"}, {"Sec-Fetch-Site", "cross-site"}}), 403U);
    EXPECT_EQ(judge(origin_check, {.method = "DELETE", .headers = {{"Host", local}, {"Origin", "http://evil"}}}), 403U);
    // Reading changes nothing, and the browser keeps the answer from the page.
    EXPECT_EQ(judge(origin_check, {.method = "GET", .headers = {{"Host", local}, {"Origin", "http://evil"}}}), 200U);
}

TEST(OriginCheck, TakesOnlyBodiesThatAreCalledJson) {
    const auto origin_check = origin_check_of("127.0.0.1");
    Route route;
    route.json_body = true;
    const auto post = [&](http::Headers headers) {
        return judge(origin_check, {.headers = std::move(headers), .route = &route, .has_body = true});
    };
    for (const char* type : {"application/json", "Application/JSON; charset=utf-8", " application/merge+json "}) {
        EXPECT_EQ(post({{"Content-Type", type}}), 200U) << type;
    }
    EXPECT_EQ(post({}), 415U);
    for (const char* type :
         {"", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"}) {
        EXPECT_EQ(post({{"Content-Type", type}}), 415U) << type;
    }
    EXPECT_EQ(judge(origin_check, {.route = &route}), 200U);  // nothing to be called anything
}

TEST(OriginCheck, NamesHostsItCannotUnderstand) {
    const auto loopback = asio::ip::make_address("127.0.0.1");
    for (const char* bad : {"", "http://jobs.example", "jobs.example:80", "a b", "u@h"}) {
        const auto origin_check = OriginCheck::make("127.0.0.1", loopback, {bad});
        ASSERT_FALSE(origin_check.has_value()) << bad;
        EXPECT_EQ(origin_check.error().kind, ErrorKind::invalid_input);
        EXPECT_THAT(origin_check.error().message, HasSubstr("'" + std::string(bad) + "'"));
    }
}

// The body of a refused request is announced and never sent: the answer comes all the same.
TEST_F(HttpServer, RefusesAtTheHeader) {
    start();
    const auto answer_to = [this](const std::string& head) {
        RawClient client(server_->address());
        client.write(head + "Content-Length: 100\r\n\r\n");
        return client.read_response();
    };
    const auto foreign = answer_to("POST /echo HTTP/1.1\r\nHost: evil.example\r\n");
    EXPECT_THAT(foreign, StartsWith("HTTP/1.1 421 Misdirected Request\r\n"));
    EXPECT_THAT(foreign, HasSubstr("--host"));
    EXPECT_THAT(foreign, HasSubstr("Connection: close\r\n"));
    EXPECT_THAT(answer_to("POST /echo HTTP/1.1\r\nHost: test\r\nOrigin: http://evil.example\r\n"),
                StartsWith("HTTP/1.1 403 "));
    EXPECT_THAT(answer_to("POST /echo HTTP/1.1\r\nHost: test\r\nSec-Fetch-Site: cross-site\r\n"),
                StartsWith("HTTP/1.1 403 "));
    const auto untyped = answer_to("POST /json HTTP/1.1\r\nHost: test\r\n");
    EXPECT_THAT(untyped, StartsWith("HTTP/1.1 415 "));
    EXPECT_THAT(untyped, HasSubstr("\"code\":\"unsupported_media_type\""));
    EXPECT_THAT(answer_to("GET /none HTTP/1.1\r\nHost: evil.example\r\n"), StartsWith("HTTP/1.1 421 "));
    EXPECT_THAT(answer_to("POST http://evil.example/echo HTTP/1.1\r\nHost: test\r\n"), StartsWith("HTTP/1.1 421 "));
    RawClient chunked(server_->address());
    chunked.write("POST /json HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\r\n");
    EXPECT_THAT(chunked.read_response(), StartsWith("HTTP/1.1 415 "));
    RawClient probe(server_->address());
    probe.write("GET /probe HTTP/1.1\r\nHost: service.namespace.svc\r\n\r\n");
    EXPECT_THAT(probe.read_response(), StartsWith("HTTP/1.1 200 "));
}

}  // namespace
}  // namespace distilld::http
