#include <gtest/gtest.h>

#include <exception>

#include <boost/asio/co_spawn.hpp>

#include "pipeline/teacher/remote_teacher.hpp"
#include "tests/support/temporary_folder.hpp"
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

/// On the wire: request line, headers, empty line, body.
std::size_t bytes_of(const SeenRequest& request) {
    std::size_t bytes = (request.method + " " + request.target + " HTTP/1.1\r\n\r\n" + request.body).size();
    for (const auto& [name, value] : request.headers) {
        bytes += (name + ": " + value + "\r\n").size();
    }
    return bytes;
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
                           [&](std::exception_ptr error, FetchResult<EncodedAnswer> result) {
                               EXPECT_FALSE(error);
                               EXPECT_TRUE(result) << (result ? "" : result.error().message);
                               ++done;
                           });
        }
        loop.io.restart();
        loop.io.run();
        EXPECT_EQ(done, 32);
    }
    const auto requests = server.requests();
    ASSERT_EQ(requests.size(), 128U);
    EXPECT_LE(server.connections(), 32U);
    EXPECT_EQ(options.traffic->requests.load(), 128U);
    EXPECT_EQ(options.traffic->connections_opened.load(), server.connections());
    EXPECT_EQ(options.traffic->bytes_received.load(), 128U * own_topk_reply(requests[0]).body.size());
    std::size_t bytes_sent = 0;
    for (const auto& request : requests) {
        bytes_sent += bytes_of(request);
    }
    EXPECT_EQ(options.traffic->bytes_sent.load(), bytes_sent);
    EXPECT_EQ(teacher->traffic(0).bytes_sent, bytes_sent);
    EXPECT_EQ(teacher->traffic(0).bytes_received, options.traffic->bytes_received.load());
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
        EXPECT_TRUE(loop.fetch(*teacher, 0, make_batch(1, 3), 20s));
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
        EXPECT_TRUE(loop.fetch(*teacher, 0, make_batch(1, 3), 20s));
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
        EXPECT_TRUE(loop.fetch(*teacher, 0, make_batch(1, 3), 20s));
    }
    EXPECT_EQ(server.connections(), 3U);
    EXPECT_EQ(options.traffic->stale_connections.load(), 0U);
}

TEST(RemoteTeacher, HttpsNeedsATrustedCertificateForTheHost) {
    const auto identity = test::make_self_signed_identity("localhost");
    ScriptedHttpServer server(own_topk_reply, identity);
    const test::TemporaryFolder folder;
    const auto ca = folder.write("ca.pem", identity.certificate_pem);
    Loop loop;
    auto spec = kserve_spec(server.url(), 4);
    const auto distrustful = loop.teacher(spec).value();
    const auto refused = loop.fetch(*distrustful, 0, make_batch(1, 3), 20s);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().kind, FailureKind::rejected);
    EXPECT_NE(refused.error().message.find("self-signed"), std::string::npos) << refused.error().message;

    spec.ca_file = ca.string();
    const auto trusting = loop.teacher(spec).value();
    for (int i = 0; i < 3; ++i) {
        const auto result = loop.fetch(*trusting, 0, make_batch(4, 50), 20s);
        EXPECT_TRUE(result) << (result ? "" : result.error().message);
    }
    EXPECT_EQ(server.connections(), 2U);  // the refused one, and one that was kept
    trusting->close();
}

TEST(RemoteTeacher, HttpsRefusesACertificateForAnotherHost) {
    const auto identity = test::make_self_signed_identity("teacher.example", false);
    ScriptedHttpServer server(own_topk_reply, identity);
    const test::TemporaryFolder folder;
    const auto ca = folder.write("ca.pem", identity.certificate_pem);
    Loop loop;
    auto spec = kserve_spec(server.url(), 4);
    spec.ca_file = ca.string();
    const auto teacher = loop.teacher(spec).value();
    const auto refused = loop.fetch(*teacher, 0, make_batch(1, 3), 20s);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().kind, FailureKind::rejected);
}

}  // namespace
}  // namespace distilld
