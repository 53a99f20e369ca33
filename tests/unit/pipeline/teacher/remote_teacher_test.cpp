#include "pipeline/teacher/remote_teacher.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cmath>
#include <cstdlib>
#include <exception>

#include "tests/unit/pipeline/teacher/teacher_fixture.hpp"

namespace distilld {
namespace {

namespace asio = boost::asio;
using namespace std::chrono_literals;
using test::kserve_spec;
using test::Loop;
using test::make_batch;
using test::own_topk_reply;
using test::ScriptedHttpServer;
using test::ScriptedReply;
using test::SeenRequest;

/// One fetch from a server that answers everything with `handler`.
FetchResult<TeacherTargets> fetch_once(ScriptedHttpServer::Handler handler, std::chrono::nanoseconds deadline = 20s,
                                       RemoteTeacherOptions options = {}) {
    ScriptedHttpServer server(std::move(handler));
    Loop loop;
    const auto teacher = loop.teacher(kserve_spec(server.url(), 4), std::move(options)).value();
    return loop.fetch(*teacher, 0, make_batch(2, 3), deadline);
}

FetchError failure_of(ScriptedReply reply, std::chrono::nanoseconds deadline = 20s) {
    auto result = fetch_once([&](const SeenRequest&) { return reply; }, deadline);
    EXPECT_FALSE(result);
    return result ? FetchError{} : result.error();
}

TEST(RemoteTeacher, FetchesTopKWithoutCopies) {
    const auto targets = fetch_once(own_topk_reply).value();
    EXPECT_EQ(targets.kind, TeacherTargets::Kind::topk);
    EXPECT_EQ(targets.width, 4U);
    EXPECT_EQ(targets.ids.type, ElementType::u32);
    EXPECT_EQ(targets.values.type, ElementType::f16);
    const auto ids = test::ids_of(targets.ids);
    ASSERT_EQ(ids.size(), 24U);
    EXPECT_EQ(ids[4], 2U);
    EXPECT_NEAR(test::floats_of(targets.values)[0], -std::log(5.0), 1e-3);
    EXPECT_NEAR(test::floats_of(targets.tail)[5], -std::log(5.0), 1e-6);
    // All three arrays lie one behind the other in the one body.
    EXPECT_EQ(targets.ids.bytes.data() + targets.ids.bytes.size(), targets.values.bytes.data());
    EXPECT_EQ(targets.values.bytes.data() + targets.values.bytes.size(), targets.tail.bytes.data());
    EXPECT_GE(targets.held_bytes, 24U * 6U + 24U);
}

TEST(RemoteTeacher, SendsTheHeadersOfTheProtocol) {
    ::setenv("DISTILLD_KEY_TEST", "s3cret", 1);
    ScriptedHttpServer server(own_topk_reply);
    Loop loop;
    auto spec = kserve_spec(server.url(), 4);
    spec.api_key_env = "DISTILLD_KEY_TEST";
    const auto teacher = loop.teacher(spec).value();
    ASSERT_TRUE(loop.fetch(*teacher, 0, make_batch(1, 3), 20s));
    const auto request = server.requests().at(0);
    EXPECT_EQ(request.method, "POST");
    EXPECT_EQ(request.target, "/v2/models/teacher/infer");
    EXPECT_EQ(request.headers.at("authorization"), "Bearer s3cret");
    EXPECT_EQ(request.headers.at("accept-encoding"), "identity");
    EXPECT_EQ(request.headers.at("content-type"), "application/octet-stream");
    const std::string json = request.body.substr(0, std::stoul(request.headers.at("inference-header-content-length")));
    EXPECT_TRUE(json.starts_with("{") && json.ends_with("}")) << json;
    EXPECT_EQ(request.headers.at("host"), "127.0.0.1:" + std::to_string(server.port()));
    EXPECT_EQ(request.headers.at("user-agent").substr(0, 9), "distilld/");
}

TEST(RemoteTeacher, FollowsNoRedirectSoThatTheKeyGoesNowhereElse) {
    ::setenv("DISTILLD_KEY_TEST", "s3cret", 1);
    ScriptedHttpServer elsewhere(own_topk_reply);
    for (const unsigned status : {301U, 302U, 307U, 308U}) {
        ScriptedHttpServer server([&](const SeenRequest& request) {
            ScriptedReply reply;
            reply.status = status;
            reply.headers = {{"Location", elsewhere.url(request.target)}};
            return reply;
        });
        Loop loop;
        auto spec = kserve_spec(server.url(), 4);
        spec.api_key_env = "DISTILLD_KEY_TEST";
        const auto teacher = loop.teacher(spec).value();
        const auto answer = loop.fetch(*teacher, 0, make_batch(1, 3), 20s);
        ASSERT_FALSE(answer);
        EXPECT_EQ(answer.error().kind, FailureKind::rejected);
        EXPECT_FALSE(loop.run(teacher->probe(512)));
    }
    EXPECT_TRUE(elsewhere.requests().empty());
}

TEST(RemoteTeacher, RefusesABadSetUpBeforeSendingAnything) {
    Loop loop;
    const auto message = [&](const TeacherSpec& spec) {
        const auto result = loop.teacher(spec);
        return result ? std::string() : result.error().message;
    };
    auto spec = kserve_spec("http://127.0.0.1:1", 4);
    EXPECT_EQ(message(spec), "");
    spec.api_key_env = "DISTILLD_KEY_NO_SUCH";
    EXPECT_NE(message(spec).find("/teacher/api_key_env: the environment variable DISTILLD_KEY_NO_SUCH"),
              std::string::npos);
    spec = kserve_spec("http://127.0.0.1:1", 4);
    spec.ca_file = "/no/such/file.pem";
    EXPECT_NE(message(spec).find("/teacher/ca_file: '/no/such/file.pem'"), std::string::npos);
    spec = kserve_spec("http://127.0.0.1:1", 4);
    spec.endpoints.push_back("http://127.0.0.1:1/other");
    EXPECT_TRUE(message(spec).starts_with("/teacher/endpoints/1: ")) << message(spec);
    EXPECT_NE(message(spec).find("/infer"), std::string::npos);
    EXPECT_TRUE(message(kserve_spec("nonsense", 4)).starts_with("/teacher/endpoints/0: ")) << message(spec);
    EXPECT_NE(message(kserve_spec("nonsense", 4)).find("nonsense"), std::string::npos);
    spec.protocol = static_cast<TeacherProtocol>(1000);
    EXPECT_NE(message(spec).find("/teacher/protocol: "), std::string::npos) << message(spec);
    spec.endpoints.clear();
    EXPECT_NE(message(spec).find("/teacher/endpoints: "), std::string::npos);
}

TEST(RemoteTeacher, ClassifiesFailures) {
    ScriptedReply reply;
    reply.status = 429;
    reply.headers = {{"Retry-After", "3"}};
    reply.body = R"({"error":"slow down"})";
    auto failure = failure_of(reply);
    EXPECT_EQ(failure.kind, FailureKind::overloaded);
    EXPECT_EQ(failure.retry_after, 3000ms);
    EXPECT_NE(failure.message.find("429: slow down"), std::string::npos) << failure.message;

    reply.headers = {{"Retry-After", "3"}, {"retry-after-ms", "250"}};
    EXPECT_EQ(failure_of(reply).retry_after, 250ms);
    reply.headers = {{"Date", "Sun, 06 Nov 1994 08:49:37 GMT"}, {"Retry-After", "Sun, 06 Nov 1994 08:49:47 GMT"}};
    reply.status = 503;
    EXPECT_EQ(failure_of(reply).retry_after, 10s);

    reply = ScriptedReply();
    reply.status = 500;
    EXPECT_EQ(failure_of(reply).kind, FailureKind::server_error);
    reply.status = 401;
    EXPECT_EQ(failure_of(reply).kind, FailureKind::rejected);

    reply = ScriptedReply();
    reply.body = "this is not KServe";
    EXPECT_EQ(failure_of(reply).kind, FailureKind::bad_response);

    reply = ScriptedReply();
    reply.raw = "SMTP ready\r\n\r\n";
    EXPECT_EQ(failure_of(reply).kind, FailureKind::bad_response);

    reply = ScriptedReply();
    reply.reset = true;
    EXPECT_EQ(failure_of(reply).kind, FailureKind::connection);

    reply = ScriptedReply();
    reply.body = std::string(5000, 'x');
    for (const bool chunked : {false, true}) {
        reply.chunked = chunked;
        for (const std::size_t sent : {0U, 1U, 2500U, 4999U}) {
            reply.cut_after = sent;
            EXPECT_EQ(failure_of(reply).kind, FailureKind::connection) << chunked << sent;
        }
    }
}

TEST(RemoteTeacher, NobodyListens) {
    Loop loop;
    const auto teacher =
        loop.teacher(kserve_spec("http://127.0.0.1:" + std::to_string(test::unused_port()), 4)).value();
    const auto result = loop.fetch(*teacher, 0, make_batch(1, 3), 20s);
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error().kind, FailureKind::connection);
}

TEST(RemoteTeacher, GivesUpAtTheDeadline) {
    ScriptedReply reply;
    reply.delay = 10min;
    const auto failure = failure_of(reply, 30ms);
    EXPECT_EQ(failure.kind, FailureKind::timeout);
    EXPECT_NE(failure.message.find("0.03 s"), std::string::npos) << failure.message;
}

TEST(RemoteTeacher, ACancelledFetchEndsAndClosesItsConnection) {
    std::atomic<int> arrived = 0;
    ScriptedHttpServer server([&](const SeenRequest&) {
        ++arrived;
        ScriptedReply reply;
        reply.delay = 10min;
        return reply;
    });
    Loop loop;
    const auto teacher = loop.teacher(kserve_spec(server.url(), 4)).value();
    asio::cancellation_signal signal;
    std::optional<FetchResult<EncodedAnswer>> result;
    asio::co_spawn(
        loop.io, teacher->fetch(0, make_batch(1, 3), 20min),
        asio::bind_cancellation_slot(signal.slot(), [&](std::exception_ptr error, FetchResult<EncodedAnswer> outcome) {
            EXPECT_FALSE(error);
            result = std::move(outcome);
        }));
    asio::steady_timer timer(loop.io);
    std::function<void(boost::system::error_code)> poll = [&](boost::system::error_code) {
        if (arrived == 0) {
            timer.expires_after(1ms);
            timer.async_wait(poll);
            return;
        }
        signal.emit(asio::cancellation_type::terminal);
    };
    poll({});
    loop.io.run();
    ASSERT_TRUE(result);
    ASSERT_FALSE(*result);
    EXPECT_EQ(result->error().kind, FailureKind::cancelled);
}

TEST(RemoteTeacher, RefusesBodiesAboveTheExpectedSize) {
    for (const bool chunked : {false, true}) {
        ScriptedReply reply;
        reply.body = std::string(std::size_t{4} << 20U, ' ');
        reply.chunked = chunked;
        const auto failure = failure_of(reply);
        EXPECT_EQ(failure.kind, FailureKind::bad_response);
        EXPECT_NE(failure.message.find("larger than the limit"), std::string::npos) << failure.message;
        // An error page of that size is cut instead, and its status still counts.
        reply.status = 400;
        EXPECT_EQ(failure_of(reply).kind, FailureKind::rejected);
    }
}

TEST(RemoteTeacher, ChecksWhatItDecodes) {
    const auto with = [](const char* from, const char* to) {
        return fetch_once([=](const SeenRequest& request) {
            auto reply = own_topk_reply(request);
            const auto at = reply.body.find(from);
            EXPECT_NE(at, std::string::npos);
            reply.body.replace(at, std::string(from).size(), to);
            return reply;
        });
    };
    EXPECT_TRUE(with("teacher", "student"));
    for (const auto& result : {with("topk_ids", "topk_idz"), with("UINT32", "FP32  "), with("[2,3,4]", "[3,2,4]"),
                               with("[2,3,4]", "[2,3,5]"), with("[2,3]", "[3,2]")}) {
        ASSERT_FALSE(result);
        EXPECT_EQ(result.error().kind, FailureKind::bad_response);
    }
    const auto nan = fetch_once([](const SeenRequest& request) {
        auto reply = own_topk_reply(request);
        reply.body.replace(reply.body.size() - 4, 4, std::string("\x00\x00\xC0\x7F", 4));
        return reply;
    });
    ASSERT_FALSE(nan);
    EXPECT_NE(nan.error().message.find("tail log-probability 5"), std::string::npos) << nan.error().message;
}

}  // namespace
}  // namespace distilld
