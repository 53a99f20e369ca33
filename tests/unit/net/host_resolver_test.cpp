#include "net/host_resolver.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <exception>
#include <latch>

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

HostAddresses loopback() {
    return {asio::ip::make_address("127.0.0.1")};
}

TEST(HostResolver, AsksTheSystem) {
    const auto here = look_up_host("localhost");
    ASSERT_TRUE(here) << here.error().message;
    ASSERT_FALSE(here->empty());
    EXPECT_TRUE(here->front().is_loopback());
    EXPECT_FALSE(look_up_host("a name with blanks"));
}

TEST(HostResolver, CallersShareALookupAndWhatItFoundIsGoodForAMoment) {
    Loop loop;
    std::atomic<int> asked = 0;
    for (const auto good_for : {std::chrono::nanoseconds(1h), std::chrono::nanoseconds(0)}) {
        asked = 0;
        std::latch all_wait(1);
        HostResolver resolver(
            loop.io.get_executor(),
            [&](const std::string& host) -> Result<HostAddresses> {
                all_wait.wait();
                ++asked;
                EXPECT_EQ(host, "teacher.test");
                return loopback();
            },
            good_for);
        int found = 0;
        for (int i = 0; i < 8; ++i) {
            asio::co_spawn(loop.io, resolver.resolve("teacher.test"),
                           [&](const std::exception_ptr&, const Result<HostAddresses>& addresses) {
                               found += addresses && *addresses == loopback() ? 1 : 0;
                           });
        }
        loop.io.restart();
        loop.io.poll();
        all_wait.count_down();
        loop.io.run();
        EXPECT_EQ(found, 8);
        EXPECT_EQ(asked, 1);
        EXPECT_TRUE(loop.run(resolver.resolve("teacher.test")));
        EXPECT_EQ(asked, good_for > 0s ? 1 : 2);
        resolver.forget("teacher.test");
        EXPECT_TRUE(loop.run(resolver.resolve("teacher.test")));
        EXPECT_EQ(asked, good_for > 0s ? 2 : 3);
    }
}

TEST(HostResolver, ARequestsDeadlineDoesNotWaitForTheLookup) {
    std::latch answer(1);
    ScriptedHttpServer server(own_topk_reply);
    Loop loop;
    RemoteTeacherOptions options;
    options.lookup = [&](const std::string&) -> Result<HostAddresses> {
        answer.wait();
        return loopback();
    };
    const auto spec = kserve_spec("http://teacher.test:" + std::to_string(server.port()), 4);
    const auto teacher = loop.teacher(spec, options).value();
    const auto late = loop.fetch(*teacher, 0, make_batch(1, 3), 20ms);
    ASSERT_FALSE(late);
    EXPECT_EQ(late.error().kind, FailureKind::timeout);
    answer.count_down();
    EXPECT_TRUE(loop.fetch(*teacher, 0, make_batch(1, 3), 20s));
}

TEST(HostResolver, ANameThatIsMissingForAMomentIsWaitedFor) {
    int asked = 0;
    ScriptedHttpServer server(own_teacher(own_topk_reply));
    Loop loop;
    std::vector<std::string> waiting;
    RemoteTeacherOptions options;
    options.lookup = [&](const std::string&) -> Result<HostAddresses> {
        if (++asked == 1) {
            return io_error("Name or service not known");
        }
        return loopback();
    };
    options.on_waiting = [&](const std::string& text) { waiting.push_back(text); };
    const auto spec = kserve_spec("http://teacher.test:" + std::to_string(server.port()), 4);
    const auto teacher = loop.teacher(spec, options).value();
    const auto info = loop.run(teacher->probe(512));
    ASSERT_TRUE(info) << info.error().message;
    EXPECT_EQ(asked, 2);
    ASSERT_EQ(waiting.size(), 2U) << "what is waited for, and that the wait is over";
    EXPECT_NE(waiting[0].find("the name of host 'teacher.test' cannot be resolved: Name or service not known"),
              std::string::npos)
        << waiting[0];
}

}  // namespace
}  // namespace distilld
