#include "pipeline/teacher/remote_teacher.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "tests/unit/pipeline/teacher/teacher_fixture.hpp"

namespace distilld {
namespace {

namespace asio = boost::asio;
using namespace std::chrono_literals;
using test::kserve_spec;
using test::Loop;
using test::make_batch;
using test::own_teacher;
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
    return loop.run(teacher->fetch(0, make_batch(2, 3), deadline));
}

FetchError failure_of(ScriptedReply reply, std::chrono::nanoseconds deadline = 20s) {
    auto result = fetch_once([&](const SeenRequest&) { return reply; }, deadline);
    EXPECT_FALSE(result);
    return result ? FetchError{} : result.error();
}

/// A port of 127.0.0.1 at which nobody listens.
std::uint16_t unused_port() {
    const ScriptedHttpServer gone(own_topk_reply);
    return gone.port();
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
    ::setenv("DISTILLD_TEST_KEY", "s3cret", 1);
    ScriptedHttpServer server(own_topk_reply);
    Loop loop;
    auto spec = kserve_spec(server.url(), 4);
    spec.api_key_env = "DISTILLD_TEST_KEY";
    const auto teacher = loop.teacher(spec).value();
    ASSERT_TRUE(loop.run(teacher->fetch(0, make_batch(1, 3), 20s)));
    const auto request = server.requests().at(0);
    EXPECT_EQ(request.method, "POST");
    EXPECT_EQ(request.target, "/v2/models/teacher/infer");
    EXPECT_EQ(request.headers.at("authorization"), "Bearer s3cret");
    EXPECT_EQ(request.headers.at("accept-encoding"), "identity");
    EXPECT_EQ(request.headers.at("content-type"), "application/octet-stream");
    EXPECT_EQ(request.headers.at("host"), "127.0.0.1:" + std::to_string(server.port()));
    EXPECT_EQ(request.headers.at("user-agent").substr(0, 9), "distilld/");
}

TEST(RemoteTeacher, RefusesABadSetUpBeforeSendingAnything) {
    Loop loop;
    const auto message = [&](const TeacherSpec& spec) {
        const auto result = loop.teacher(spec);
        return result ? std::string() : result.error().message;
    };
    auto spec = kserve_spec("http://127.0.0.1:1", 4);
    EXPECT_EQ(message(spec), "");
    spec.api_key_env = "DISTILLD_TEST_NO_SUCH_KEY";
    EXPECT_NE(message(spec).find("DISTILLD_TEST_NO_SUCH_KEY"), std::string::npos);
    spec = kserve_spec("http://127.0.0.1:1", 4);
    spec.ca_file = "/no/such/file.pem";
    EXPECT_NE(message(spec).find("/no/such/file.pem"), std::string::npos);
    EXPECT_NE(message(kserve_spec("http://127.0.0.1:1/other", 4)).find("/infer"), std::string::npos);
    EXPECT_NE(message(kserve_spec("nonsense", 4)).find("nonsense"), std::string::npos);
    spec.endpoints.clear();
    EXPECT_NE(message(spec).find("endpoints"), std::string::npos);
}

TEST(RemoteTeacher, ConcurrentFetchesReuseConnections) {
    ScriptedHttpServer server(own_topk_reply);
    Loop loop;
    RemoteTeacherOptions options;
    options.traffic = std::make_shared<TrafficCounters>();
    const auto teacher = loop.teacher(kserve_spec(server.url(), 4), options).value();
    for (int round = 0; round < 4; ++round) {
        int done = 0;
        for (int i = 0; i < 32; ++i) {
            asio::co_spawn(loop.io, teacher->fetch(0, make_batch(2, 8), 20s),
                           [&](std::exception_ptr error, FetchResult<TeacherTargets> result) {
                               EXPECT_FALSE(error);
                               EXPECT_TRUE(result) << (result ? "" : result.error().message);
                               ++done;
                           });
        }
        loop.io.restart();
        loop.io.run();
        EXPECT_EQ(done, 32);
    }
    EXPECT_EQ(server.requests().size(), 128U);
    EXPECT_LE(server.connections(), 32U);
    EXPECT_EQ(options.traffic->requests.load(), 128U);
    EXPECT_EQ(options.traffic->connections_opened.load(), server.connections());
    EXPECT_GT(options.traffic->bytes_received.load(), 0U);
    EXPECT_GT(options.traffic->bytes_sent.load(), 0U);
    teacher->close();
}

TEST(RemoteTeacher, AStaleConnectionIsReopenedWithoutAFailure) {
    ScriptedHttpServer server([](const SeenRequest& request) {
        auto reply = own_topk_reply(request);
        reply.close_after = true;  // unannounced: the client keeps the connection
        return reply;
    });
    Loop loop;
    RemoteTeacherOptions options;
    options.traffic = std::make_shared<TrafficCounters>();
    const auto teacher = loop.teacher(kserve_spec(server.url(), 4), options).value();
    for (int i = 0; i < 5; ++i) {
        EXPECT_TRUE(loop.run(teacher->fetch(0, make_batch(1, 3), 20s)));
    }
    EXPECT_EQ(server.requests().size(), 5U);
    EXPECT_EQ(server.connections(), 5U);
    EXPECT_EQ(options.traffic->stale_connections.load(), 4U);
}

TEST(RemoteTeacher, IdleConnectionsAreRetired) {
    ScriptedHttpServer server(own_topk_reply);
    Loop loop;
    RemoteTeacherOptions options;
    options.idle_limit = 0ms;
    const auto teacher = loop.teacher(kserve_spec(server.url(), 4), options).value();
    for (int i = 0; i < 3; ++i) {
        EXPECT_TRUE(loop.run(teacher->fetch(0, make_batch(1, 3), 20s)));
    }
    EXPECT_EQ(server.connections(), 3U);
}

TEST(RemoteTeacher, AnAnnouncedCloseIsHonoured) {
    ScriptedHttpServer server([](const SeenRequest& request) {
        auto reply = own_topk_reply(request);
        reply.headers.emplace_back("Connection", "close");
        return reply;
    });
    Loop loop;
    RemoteTeacherOptions options;
    options.traffic = std::make_shared<TrafficCounters>();
    const auto teacher = loop.teacher(kserve_spec(server.url(), 4), options).value();
    for (int i = 0; i < 3; ++i) {
        EXPECT_TRUE(loop.run(teacher->fetch(0, make_batch(1, 3), 20s)));
    }
    EXPECT_EQ(server.connections(), 3U);
    EXPECT_EQ(options.traffic->stale_connections.load(), 0U);
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
    std::uint16_t port = 0;
    {
        const ScriptedHttpServer server(own_topk_reply);
        port = server.port();
    }
    Loop loop;
    const auto teacher = loop.teacher(kserve_spec("http://127.0.0.1:" + std::to_string(port), 4)).value();
    const auto result = loop.run(teacher->fetch(0, make_batch(1, 3), 20s));
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
    std::optional<FetchResult<TeacherTargets>> result;
    asio::co_spawn(
        loop.io, teacher->fetch(0, make_batch(1, 3), 20min),
        asio::bind_cancellation_slot(signal.slot(), [&](std::exception_ptr error, FetchResult<TeacherTargets> outcome) {
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

TEST(RemoteTeacher, TheProbeLearnsAndChecks) {
    ScriptedHttpServer server(own_teacher(own_topk_reply));
    Loop loop;
    const auto teacher = loop.teacher(kserve_spec(server.url(), 4)).value();
    const auto info = loop.run(teacher->probe(512)).value();
    EXPECT_EQ(info.top_k, 4U);
    EXPECT_TRUE(info.deterministic);
    EXPECT_NE(info.description.find("top 4"), std::string::npos) << info.description;
    EXPECT_TRUE(loop.run(teacher->fetch(0, make_batch(2, 3), 20s)));
    // Its ids reach 5: too many for a student of four tokens.
    const auto small = loop.run(teacher->probe(4));
    ASSERT_FALSE(small);
    EXPECT_NE(small.error().message.find("vocabulary of 4"), std::string::npos) << small.error().message;
    EXPECT_NE(small.error().message.find(server.url()), std::string::npos) << small.error().message;
}

TEST(RemoteTeacher, TheProbeRefusesNumbersThatAreNoLogProbabilities) {
    ScriptedHttpServer server(own_teacher([](const SeenRequest& request) {
        auto reply = own_topk_reply(request);
        const std::string little(3 * 4, '\0');
        reply.body.replace(reply.body.size() - little.size(), little.size(), little);  // a tail of probability 1
        return reply;
    }));
    Loop loop;
    const auto teacher = loop.teacher(kserve_spec(server.url(), 4)).value();
    const auto info = loop.run(teacher->probe(512));
    ASSERT_FALSE(info);
    EXPECT_NE(info.error().message.find("add up to 1.8"), std::string::npos) << info.error().message;
}

TEST(RemoteTeacher, TheProbeWaitsForAServerThatIsNotReady) {
    int asked = 0;
    const auto ready = own_teacher(own_topk_reply);
    ScriptedHttpServer server([&](const SeenRequest& request) {
        if (++asked <= 2) {
            ScriptedReply reply;
            reply.status = 503;
            return reply;
        }
        return ready(request);
    });
    Loop loop;
    const auto teacher = loop.teacher(kserve_spec(server.url(), 4)).value();
    EXPECT_TRUE(loop.run(teacher->probe(512)));
    EXPECT_EQ(asked, 3 + 1 + 2);  // readiness three times, metadata, two answers
}

TEST(RemoteTeacher, TheProbeSaysWhichEndpointFailsAndHow) {
    ScriptedHttpServer good(own_teacher(own_topk_reply));
    ScriptedHttpServer bad(own_teacher([](const SeenRequest&) {
        ScriptedReply reply;
        reply.status = 400;
        reply.body = R"({"error":"no such model"})";
        return reply;
    }));
    Loop loop;
    auto spec = kserve_spec(good.url(), 4);
    spec.endpoints.push_back(bad.url());
    const auto teacher = loop.teacher(spec).value();
    EXPECT_EQ(teacher->endpoint_count(), 2U);
    const auto info = loop.run(teacher->probe(512));
    ASSERT_FALSE(info);
    EXPECT_EQ(info.error().kind, ErrorKind::teacher);
    EXPECT_NE(info.error().message.find(bad.url()), std::string::npos) << info.error().message;
    EXPECT_NE(info.error().message.find("no such model"), std::string::npos) << info.error().message;

    RemoteTeacherOptions hasty;
    hasty.start_deadline = 0ms;
    const std::string url = "http://127.0.0.1:" + std::to_string(unused_port());
    const auto absent = loop.teacher(kserve_spec(url, 4), hasty).value();
    const auto unreachable = loop.run(absent->probe(512));
    ASSERT_FALSE(unreachable);
    EXPECT_NE(unreachable.error().message.find(url), std::string::npos) << unreachable.error().message;
    EXPECT_NE(unreachable.error().message.find("not ready"), std::string::npos) << unreachable.error().message;
}

TEST(RemoteTeacher, AnEndpointThatIsDownDoesNotHoldUpTheOthersAndJoinsLater) {
    ScriptedHttpServer up(own_teacher(own_topk_reply));
    const std::uint16_t port = unused_port();
    Loop loop;
    auto spec = kserve_spec("http://127.0.0.1:" + std::to_string(port), 4);
    spec.endpoints.push_back(up.url());
    std::vector<std::string> warnings;
    RemoteTeacherOptions options;
    options.join_grace = 10ms;
    options.on_warning = [&](const std::string& text) { warnings.push_back(text); };
    const auto teacher = loop.teacher(spec, options).value();
    const auto info = loop.run(teacher->probe(512));
    ASSERT_TRUE(info) << info.error().message;
    EXPECT_EQ(info->absent, std::vector<std::size_t>{0});
    EXPECT_EQ(info->top_k, 4U);
    EXPECT_TRUE(info->deterministic);
    EXPECT_NE(info->description.find("1 not up yet"), std::string::npos) << info->description;

    const auto down = loop.run(teacher->fetch(0, make_batch(2, 3), 20s));
    ASSERT_FALSE(down);
    EXPECT_EQ(down.error().kind, FailureKind::connection);
    EXPECT_TRUE(loop.run(teacher->fetch(1, make_batch(2, 3), 20s)));

    ScriptedHttpServer late(own_teacher(own_topk_reply), std::nullopt, port);
    ASSERT_TRUE(loop.run(teacher->fetch(0, make_batch(2, 3), 20s)));
    ASSERT_TRUE(loop.run(teacher->fetch(0, make_batch(2, 3), 20s)));
    EXPECT_EQ(late.requests().size(), 2U + 2 + 2) << "readiness and metadata, the probe's two answers, two fetches";
    EXPECT_TRUE(warnings.empty());
}

TEST(RemoteTeacher, ATeacherThatKnowsMoreTokensIsWarnedOf) {
    ScriptedHttpServer server(own_teacher(own_topk_reply));
    for (const std::uint32_t vocabulary : {512U, 500U}) {
        Loop loop;
        std::vector<std::string> warnings;
        RemoteTeacherOptions options;
        options.on_warning = [&](const std::string& text) { warnings.push_back(text); };
        const auto teacher = loop.teacher(kserve_spec(server.url(), 4), options).value();
        const auto info = loop.run(teacher->probe(vocabulary));
        ASSERT_TRUE(info) << info.error().message;
        EXPECT_EQ(info->vocabulary_size, 512U);
        ASSERT_EQ(warnings.size(), vocabulary == 512U ? 0U : 1U);
        if (!warnings.empty()) {
            EXPECT_NE(warnings[0].find("512 tokens and the student 500"), std::string::npos);
        }
    }
}

TEST(RemoteTeacher, AnEndpointThatJoinsLateMustPassTheProbeToo) {
    ScriptedHttpServer up(own_teacher(own_topk_reply));
    const std::uint16_t port = unused_port();
    Loop loop;
    auto spec = kserve_spec(up.url(), 4);
    spec.endpoints.push_back("http://127.0.0.1:" + std::to_string(port));
    std::vector<std::string> warnings;
    RemoteTeacherOptions options;
    options.join_grace = 10ms;
    options.on_warning = [&](const std::string& text) { warnings.push_back(text); };
    const auto teacher = loop.teacher(spec, options).value();
    ASSERT_TRUE(loop.run(teacher->probe(512)));
    {
        ScriptedHttpServer refuses(own_teacher([](const SeenRequest&) {
                                       ScriptedReply reply;
                                       reply.status = 400;
                                       reply.body = R"({"error":"no such model"})";
                                       return reply;
                                   }),
                                   std::nullopt, port);
        const auto refused = loop.run(teacher->fetch(1, make_batch(2, 3), 20s));
        ASSERT_FALSE(refused);
        EXPECT_EQ(refused.error().kind, FailureKind::bad_response) << "it may be mended: the job goes on";
        EXPECT_NE(refused.error().message.find("no such model"), std::string::npos) << refused.error().message;
    }
    ScriptedHttpServer other(own_teacher([](const SeenRequest& request) {
                                 auto reply = own_topk_reply(request);
                                 reply.body[reply.body.size() - 4] ^= 1;  // last bit of a tail
                                 return reply;
                             }),
                             std::nullopt, port);
    EXPECT_TRUE(warnings.empty());
    EXPECT_TRUE(loop.run(teacher->fetch(1, make_batch(2, 3), 20s)));
    ASSERT_EQ(warnings.size(), 1U);
    EXPECT_NE(warnings[0].find("reproducible"), std::string::npos);
}

/// A PEM file that goes away again.
class PemFile {
  public:
    explicit PemFile(const std::string& pem)
        : path_(std::filesystem::temp_directory_path() / ("distilld-ca-" + std::to_string(::getpid()) + ".pem")) {
        std::ofstream(path_) << pem;
    }
    ~PemFile() { std::filesystem::remove(path_); }
    PemFile(const PemFile&) = delete;
    PemFile& operator=(const PemFile&) = delete;
    [[nodiscard]] std::string path() const { return path_.string(); }

  private:
    std::filesystem::path path_;
};

TEST(RemoteTeacher, HttpsNeedsATrustedCertificateForTheHost) {
    const auto identity = test::make_self_signed_identity("localhost");
    ScriptedHttpServer server(own_topk_reply, identity);
    const PemFile ca(identity.certificate_pem);
    Loop loop;
    auto spec = kserve_spec(server.url(), 4);
    const auto distrustful = loop.teacher(spec).value();
    const auto refused = loop.run(distrustful->fetch(0, make_batch(1, 3), 20s));
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().kind, FailureKind::rejected);
    EXPECT_NE(refused.error().message.find("self-signed"), std::string::npos) << refused.error().message;

    spec.ca_file = ca.path();
    const auto trusting = loop.teacher(spec).value();
    for (int i = 0; i < 3; ++i) {
        const auto result = loop.run(trusting->fetch(0, make_batch(4, 50), 20s));
        EXPECT_TRUE(result) << (result ? "" : result.error().message);
    }
    EXPECT_EQ(server.connections(), 2U);  // the refused one, and one that was kept
    trusting->close();
}

TEST(RemoteTeacher, HttpsRefusesACertificateForAnotherHost) {
    const auto identity = test::make_self_signed_identity("teacher.example", false);
    ScriptedHttpServer server(own_topk_reply, identity);
    const PemFile ca(identity.certificate_pem);
    Loop loop;
    auto spec = kserve_spec(server.url(), 4);
    spec.ca_file = ca.path();
    const auto teacher = loop.teacher(spec).value();
    const auto refused = loop.run(teacher->fetch(0, make_batch(1, 3), 20s));
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().kind, FailureKind::rejected);
}

}  // namespace
}  // namespace distilld
