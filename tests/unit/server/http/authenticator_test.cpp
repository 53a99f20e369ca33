#include "server/http/authenticator.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "api/problem.hpp"
#include "server/http/listen_address.hpp"
#include "tests/unit/server/http/raw_client.hpp"
#include "tests/unit/server/http/server_fixture.hpp"

namespace distilld::http {
namespace {

using test::get;
using test::HttpServer;
using test::post;
using test::RawClient;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

/// Takes "Bearer good", until that is revoked.
class TestAuthenticator final : public Authenticator {
  public:
    Authentication judge(const RequestHead& head) override {
        Authentication verdict;
        if (head.request.header("authorization") == "Bearer good" && !revoked) {
            verdict.caller = http::Caller{"alice", http::Role::submit, "key-a"};
        } else {
            api::Problem problem;
            problem.status = 401;
            verdict.refusal = http::to_response(problem, {{"WWW-Authenticate", "Bearer"}});
        }
        return verdict;
    }
    std::optional<http::Response> revocation(const http::Caller& caller) override {
        ++asked;
        revoked = revoked || revoke_when_asked;
        http::Response refusal;
        refusal.status = 401;
        return revoked && caller.name == "alice" ? std::optional(std::move(refusal)) : std::nullopt;
    }

    std::atomic<bool> revoked = false;
    std::atomic<bool> revoke_when_asked = false;
    std::atomic<int> asked = 0;
};

class Guarded : public HttpServer {
  protected:
    void begin() {
        ServerOptions options;
        options.authenticator = authenticator_;
        options.auditor = [this](const AnswerRecord& answer) {
            const std::lock_guard guard(mutex_);
            answers_.push_back(answer);
        };
        start(options);
    }
    std::vector<AnswerRecord> answers() {
        const std::lock_guard guard(mutex_);
        return answers_;
    }

    std::shared_ptr<TestAuthenticator> authenticator_ = std::make_shared<TestAuthenticator>();

  private:
    std::mutex mutex_;
    std::vector<AnswerRecord> answers_;
};

TEST_F(Guarded, RefusesBeforeTheBodyComes) {
    begin();
    for (const char* path : {"/echo", "/json", "/nothing-there"}) {
        RawClient client(server_->address());
        client.write(std::string("POST ") + path + " HTTP/1.1\r\nHost: test\r\nContent-Type: application/json\r\n" +
                     "Content-Length: 1000000\r\n\r\n");
        const auto answer = client.read_all();  // the body never comes
        EXPECT_THAT(answer, StartsWith("HTTP/1.1 401 ")) << path;
        EXPECT_THAT(answer, HasSubstr("WWW-Authenticate: Bearer\r\n"));
    }
    RawClient huge(server_->address());
    huge.write("POST /echo HTTP/1.1\r\nHost: test\r\nContent-Length: 99999999999999\r\n\r\n");
    EXPECT_THAT(huge.read_all(), StartsWith("HTTP/1.1 401 ")) << "how large is nothing to a stranger";
    RawClient chunked(server_->address());
    chunked.write("POST /echo HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\r\n");
    EXPECT_THAT(chunked.read_all(), StartsWith("HTTP/1.1 401 "));
}

TEST_F(Guarded, LetsThroughWhoeverIsKnownWithoutTheKey) {
    begin();
    RawClient client(server_->address());
    client.write(get("/items/7", "authorization: Bearer good\r\n"));
    EXPECT_THAT(client.read_response(), StartsWith("HTTP/1.1 200 "));
    client.write(get("/headers", "AUTHORIZATION: Bearer good\r\n"));
    const auto seen = client.read_response();
    EXPECT_THAT(seen, HasSubstr("caller=alice"));
    EXPECT_THAT(seen, Not(HasSubstr("good"))) << "no handler sees the key";
}

TEST_F(Guarded, F7TellsWhoSentWhatCannotBeRead) {
    begin();
    RawClient client(server_->address());
    client.write("GET / HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: gzip\r\n\r\n");
    EXPECT_THAT(client.read_all(), StartsWith("HTTP/1.1 400 "));
    ASSERT_TRUE(noted("OTHER unmatched 400"));
    EXPECT_EQ(answers().at(0).remote, "127.0.0.1");
}

TEST_F(Guarded, TellsOfEveryAnswerToAChange) {
    begin();
    RawClient client(server_->address());
    const std::string key = "Authorization: Bearer good\r\nX-Request-Id: mine\r\n";
    client.write(get("/hello", key));
    EXPECT_THAT(client.read_response(), StartsWith("HTTP/1.1 200 "));
    client.write("POST /echo HTTP/1.1\r\nHost: test\r\nContent-Length: 2\r\n" + key + "\r\nab");
    EXPECT_THAT(client.read_response(), StartsWith("HTTP/1.1 200 "));
    client.write("DELETE /items/7 HTTP/1.1\r\nHost: test\r\n\r\n");
    EXPECT_THAT(client.read_all(), StartsWith("HTTP/1.1 401 "));
    ASSERT_TRUE(noted("DELETE unmatched 401"));
    const auto told = answers();
    ASSERT_EQ(told.size(), 2U);
    EXPECT_EQ(told[0].method, "POST");
    EXPECT_EQ(told[0].path, "/echo");
    EXPECT_EQ(told[0].caller, "alice");
    EXPECT_EQ(told[0].remote, "127.0.0.1");
    EXPECT_EQ(told[0].request_id, "mine");
    EXPECT_EQ(told[0].status, 200U);
    EXPECT_EQ(told[1].method, "DELETE");
    EXPECT_EQ(told[1].caller, "");
    EXPECT_EQ(told[1].status, 401U);
}

TEST_F(Guarded, F12AStreamEndsWhenItsKeyIsRevoked) {
    begin();
    RawClient client(server_->address());
    client.write(get("/endless", "Authorization: Bearer good\r\n"));
    EXPECT_THAT(client.read_until("tick\r\n4\r\ntick\r\n"), StartsWith("HTTP/1.1 200 "));
    authenticator_->revoked = true;
    EXPECT_EQ(client.read_all(), "") << "no chunk marks an end";
    EXPECT_TRUE(noted("pull cancelled"));
}

TEST_F(Guarded, F12AnUploadEndsWhenItsKeyIsRevoked) {
    begin();
    RawClient client(server_->address());
    client.write(
        "POST /sizes HTTP/1.1\r\nHost: test\r\nAuthorization: Bearer good\r\nContent-Length: 10\r\n"
        "Expect: 100-continue\r\n\r\n");
    EXPECT_THAT(client.read_until("\r\n\r\n"), StartsWith("HTTP/1.1 100 "));
    client.write("hello");
    while (authenticator_->asked < 2) {  // before the handler, and beside it
        std::this_thread::yield();
    }
    authenticator_->revoked = true;
    EXPECT_THAT(client.read_all(), StartsWith("HTTP/1.1 401 ")) << "the rest of the body never comes";
}

TEST_F(Guarded, F12AnUploadWhoseKeyIsRevokedBeforeItBeginsEndsItsConnection) {
    begin();
    authenticator_->revoke_when_asked = true;
    RawClient client(server_->address());
    client.write("POST /sizes HTTP/1.1\r\nHost: test\r\nAuthorization: Bearer good\r\nContent-Length: 10\r\n\r\nhello");
    EXPECT_THAT(client.read_all(), StartsWith("HTTP/1.1 401 ")) << "what is left of the body is no request";
}

TEST_F(Guarded, F12ARequestWhoseKeyIsRevokedWhileItsBodyComesIsRefused) {
    begin();
    RawClient client(server_->address());
    client.write(
        "POST /echo HTTP/1.1\r\nHost: test\r\nAuthorization: Bearer good\r\nContent-Length: 2\r\n"
        "Expect: 100-continue\r\n\r\n");
    EXPECT_THAT(client.read_until("\r\n\r\n"), StartsWith("HTTP/1.1 100 "));
    authenticator_->revoked = true;
    client.write("ab");
    EXPECT_THAT(client.read_response(), StartsWith("HTTP/1.1 401 "));
}

TEST(ListenAddress, KnowsWhatOthersReach) {
    for (const char* narrow : {"127.0.0.1:0", "localhost:8500", "[::1]:0", "127.9.9.9:1"}) {
        EXPECT_FALSE(resolve_listen(narrow).value().is_wide()) << narrow;
    }
    for (const char* wide : {"0.0.0.0:0", "[::]:8500", "192.0.2.1:0", "[fd00::1]:1", "[::ffff:127.0.0.1]:0"}) {
        EXPECT_TRUE(resolve_listen(wide).value().is_wide()) << wide;
    }
    for (const char* bad : {"", ":1", "127.0.0.1", "::1:80", "127.0.0.1:x", "127.0.0.1:70000"}) {
        EXPECT_FALSE(resolve_listen(bad).has_value()) << bad;
    }
}

}  // namespace
}  // namespace distilld::http
