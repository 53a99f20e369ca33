#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "pipeline/teacher/remote_teacher.hpp"
#include "tests/unit/pipeline/teacher/teacher_fixture.hpp"

namespace distilld {
namespace {

using namespace std::chrono_literals;
using test::kserve_spec;
using test::Loop;
using test::make_batch;
using test::own_teacher;
using test::own_topk_reply;
using test::ScriptedHttpServer;
using test::ScriptedReply;
using test::SeenRequest;
using test::unused_port;

TEST(RemoteTeacher, TheProbeLearnsAndChecks) {
    ScriptedHttpServer server(own_teacher(own_topk_reply));
    Loop loop;
    const auto teacher = loop.teacher(kserve_spec(server.url(), 4)).value();
    const auto info = loop.run(teacher->probe(512)).value();
    EXPECT_EQ(info.top_k, 4U);
    EXPECT_TRUE(info.deterministic);
    EXPECT_NE(info.description.find("top 4"), std::string::npos) << info.description;
    EXPECT_TRUE(loop.fetch(*teacher, 0, make_batch(2, 3), 20s));
    // Its ids reach 5: what becomes of them with a student of four tokens is decided by whoever knows the student.
    EXPECT_EQ(loop.run(teacher->probe(4)).value().vocabulary_size, 512U);
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
    EXPECT_EQ(asked, 3 + 2 + 2);  // readiness three times, metadata and configuration, two answers
}

TEST(RemoteTeacher, TheProbeSaysWhichEndpointFailsAndHow) {
    ScriptedHttpServer bad(own_teacher([](const SeenRequest&) {
        ScriptedReply reply;
        reply.status = 400;
        reply.body = R"({"error":"no such tensor"})";
        return reply;
    }));
    Loop loop;
    const auto teacher = loop.teacher(kserve_spec(bad.url(), 4)).value();
    const auto info = loop.run(teacher->probe(512));
    ASSERT_FALSE(info);
    EXPECT_EQ(info.error().kind, ErrorKind::teacher);
    EXPECT_NE(info.error().message.find(bad.url()), std::string::npos) << info.error().message;
    EXPECT_NE(info.error().message.find("no such tensor"), std::string::npos) << info.error().message;

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
    options.on_warning = [&](const std::string& text) { warnings.push_back(text); };
    const auto teacher = loop.teacher(spec, options).value();
    const auto info = loop.run(teacher->probe(512));
    ASSERT_TRUE(info) << info.error().message;
    EXPECT_EQ(info->absent, std::vector<std::size_t>{0});
    EXPECT_EQ(info->top_k, 4U);
    EXPECT_TRUE(info->deterministic);
    EXPECT_NE(info->description.find("1 not up yet"), std::string::npos) << info->description;

    const auto down = loop.fetch(*teacher, 0, make_batch(2, 3), 20s);
    ASSERT_FALSE(down);
    EXPECT_EQ(down.error().kind, FailureKind::connection);
    EXPECT_TRUE(loop.fetch(*teacher, 1, make_batch(2, 3), 20s));

    ScriptedHttpServer late(own_teacher(own_topk_reply), std::nullopt, port);
    ASSERT_TRUE(loop.fetch(*teacher, 0, make_batch(2, 3), 20s));
    ASSERT_TRUE(loop.fetch(*teacher, 0, make_batch(2, 3), 20s));
    EXPECT_EQ(late.requests().size(), 3U + 2 + 2) << "readiness, metadata, configuration, two answers, two fetches";
    EXPECT_TRUE(warnings.empty());
}

TEST(RemoteTeacher, AnEndpointThatJoinsLateMustPassTheProbeToo) {
    ScriptedHttpServer up(own_teacher(own_topk_reply));
    const std::uint16_t port = unused_port();
    Loop loop;
    auto spec = kserve_spec(up.url(), 4);
    spec.endpoints.push_back("http://127.0.0.1:" + std::to_string(port));
    std::vector<std::string> warnings;
    RemoteTeacherOptions options;
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
        const auto refused = loop.fetch(*teacher, 1, make_batch(2, 3), 20s);
        ASSERT_FALSE(refused);
        EXPECT_EQ(refused.error().kind, FailureKind::bad_response) << "it may be fixed: the job continues";
        EXPECT_NE(refused.error().message.find("no such model"), std::string::npos) << refused.error().message;
    }
    ScriptedHttpServer other(own_teacher([](const SeenRequest& request) {
                                 auto reply = own_topk_reply(request);
                                 reply.body[reply.body.size() - 4] ^= 1;  // last bit of a tail
                                 return reply;
                             }),
                             std::nullopt, port);
    EXPECT_TRUE(warnings.empty());
    EXPECT_TRUE(loop.fetch(*teacher, 1, make_batch(2, 3), 20s));
    ASSERT_EQ(warnings.size(), 1U);
    EXPECT_NE(warnings[0].find("reproducible"), std::string::npos);
}

/// Answers as own_topk_reply, but of another model: other tokens are likely.
ScriptedReply other_models_reply(const SeenRequest& request) {
    ScriptedReply reply = own_topk_reply(request);
    const std::size_t first_id = std::stoul(reply.headers.at(1).second);
    // Of each position 4 ids, 4 log-probabilities in half precision, and a tail; ids come first.
    const std::size_t ids = (reply.body.size() - first_id) / (4 * 4 + 4 * 2 + 4) * 4;
    for (std::size_t i = 0; i < ids; ++i) {
        reply.body[first_id + 4 * i + 1] ^= 1;  // 256 ids further
    }
    return reply;
}

std::shared_ptr<const TokenBatch> numbered_batch(std::uint64_t number) {
    auto batch = std::make_shared<TokenBatch>(*make_batch(2, 3));
    batch->number = number;
    return batch;
}

/// Two replicas, of which each can be made to serve another model.
struct TwoReplicas {
    std::atomic<bool> first_flipped{false};
    std::atomic<bool> second_flipped{false};
    ScriptedHttpServer first{own_teacher([this](const SeenRequest& request) {
        return first_flipped ? other_models_reply(request) : own_topk_reply(request);
    })};
    ScriptedHttpServer second{own_teacher([this](const SeenRequest& request) {
        return second_flipped ? other_models_reply(request) : own_topk_reply(request);
    })};
    std::vector<std::string> warnings;
    Loop loop;
    std::unique_ptr<TeacherSource> teacher;

    TwoReplicas() {
        auto spec = kserve_spec(first.url(), 4);
        spec.endpoints.push_back(second.url());
        RemoteTeacherOptions options;
        options.on_warning = [this](const std::string& text) { warnings.push_back(text); };
        teacher = loop.teacher(spec, options).value();
    }
    FetchResult<TeacherTargets> fetch(std::size_t endpoint, std::uint64_t number) {
        return loop.fetch(*teacher, endpoint, numbered_batch(number), 20s);
    }
};

TEST(RemoteTeacher, F12ReplicasOfTwoModelsAreToldApartAtTheProbe) {
    TwoReplicas replicas;
    replicas.second_flipped = true;
    const auto info = replicas.loop.run(replicas.teacher->probe(512));
    ASSERT_TRUE(info) << info.error().message;
    EXPECT_EQ(info->refused, std::vector<std::size_t>{1}) << "the first in the list decides";
    ASSERT_EQ(replicas.warnings.size(), 1U);
    EXPECT_NE(replicas.warnings[0].find(replicas.second.url()), std::string::npos) << replicas.warnings[0];
    EXPECT_NE(replicas.warnings[0].find("does not serve the model of " + replicas.first.url()), std::string::npos)
        << replicas.warnings[0];
    EXPECT_NE(replicas.warnings[0].find("3 of 3 positions"), std::string::npos) << replicas.warnings[0];
    // Mended, it joins.
    const auto refused = replicas.fetch(1, 0);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().kind, FailureKind::not_found) << refused.error().message;
    replicas.second_flipped = false;
    EXPECT_TRUE(replicas.fetch(1, 0));
}

TEST(RemoteTeacher, F12AReplicaThatChangesItsModelInMidRunIsLeftOut) {
    for (const std::size_t flipped : {std::size_t{0}, std::size_t{1}}) {
        TwoReplicas replicas;
        ASSERT_TRUE(replicas.loop.run(replicas.teacher->probe(512)));
        (flipped == 0 ? replicas.first_flipped : replicas.second_flipped) = true;
        const std::size_t before = replicas.first.requests().size() + replicas.second.requests().size();
        for (std::uint64_t number = 0; number < 63; ++number) {
            ASSERT_TRUE(replicas.fetch(0, number));
        }
        EXPECT_EQ(replicas.first.requests().size() + replicas.second.requests().size(), before + 63)
            << "only one in 64 is asked of two";
        EXPECT_TRUE(replicas.warnings.empty());
        ASSERT_TRUE(replicas.fetch(0, 63)) << "what was answered counts";
        EXPECT_EQ(replicas.fetch(0, 64).has_value(), flipped != 0);
        EXPECT_EQ(replicas.fetch(1, 65).has_value(), flipped != 1);
        ASSERT_EQ(replicas.warnings.size(), 1U);
        EXPECT_NE(replicas.warnings[0].find(replicas.first.url()), std::string::npos) << replicas.warnings[0];
        EXPECT_NE(replicas.warnings[0].find(replicas.second.url()), std::string::npos) << replicas.warnings[0];
        EXPECT_NE(replicas.warnings[0].find("micro-batch 63"), std::string::npos) << replicas.warnings[0];
    }
}

TEST(RemoteTeacher, F12ReplicasOfOneModelAreComparedAndNothingIsSaid) {
    TwoReplicas replicas;
    ASSERT_TRUE(replicas.loop.run(replicas.teacher->probe(512)));
    const std::size_t before = replicas.second.requests().size();
    for (const std::uint64_t number : {63U, 127U, 191U}) {
        ASSERT_TRUE(replicas.fetch(0, number));
    }
    EXPECT_EQ(replicas.second.requests().size(), before + 3);
    EXPECT_TRUE(replicas.fetch(0, 0));
    EXPECT_TRUE(replicas.warnings.empty());
}

TEST(RemoteTeacher, AReplicaThatFailsWhenItIsComparedCostsTheOtherNothing) {
    std::atomic<bool> broken{false};
    ScriptedHttpServer good(own_teacher(own_topk_reply));
    ScriptedHttpServer bad(own_teacher([&](const SeenRequest& request) {
        if (!broken) {
            return own_topk_reply(request);
        }
        ScriptedReply reply;
        reply.status = 500;
        return reply;
    }));
    Loop loop;
    auto spec = kserve_spec(good.url(), 4);
    spec.endpoints.push_back(bad.url());
    const auto teacher = loop.teacher(spec).value();
    ASSERT_TRUE(loop.run(teacher->probe(512)));
    broken = true;
    EXPECT_TRUE(loop.fetch(*teacher, 0, numbered_batch(63), 20s));
    EXPECT_TRUE(loop.fetch(*teacher, 0, numbered_batch(127), 20s)) << "the comparison before has ended";
    EXPECT_FALSE(loop.fetch(*teacher, 1, numbered_batch(191), 20s));
}

/// Of the run, what it takes is order: the first has answered, and the other is still to be asked again.
TEST(RemoteTeacher, AStartDoesNotWaitForAnEndpointThatAnswers503) {
    int asked = 0;
    ScriptedHttpServer loading([&](const SeenRequest&) {
        ++asked;
        ScriptedReply reply;
        reply.status = 503;
        return reply;
    });
    ScriptedHttpServer up(own_teacher(own_topk_reply));
    Loop loop;
    auto spec = kserve_spec(loading.url(), 4);
    spec.endpoints.push_back(up.url());
    const auto teacher = loop.teacher(spec).value();
    const auto info = loop.run(teacher->probe(512));
    ASSERT_TRUE(info) << info.error().message;
    EXPECT_EQ(info->absent, std::vector<std::size_t>{0});
    EXPECT_LE(asked, 2) << "in a second it is asked three times";
}

TEST(RemoteTeacher, AStartDoesNotWaitForAnEndpointThatNeverAnswers) {
    std::promise<void> over;
    const std::shared_future<void> ended = over.get_future().share();
    ScriptedHttpServer up(own_teacher(own_topk_reply));
    ScriptedHttpServer silent([ended](const SeenRequest&) {
        ended.wait();
        return ScriptedReply();
    });
    Loop loop;
    auto spec = kserve_spec(silent.url(), 4);  // its request may take 30 s
    spec.endpoints.push_back(up.url());
    const auto teacher = loop.teacher(spec).value();
    const auto info = loop.run(teacher->probe(512));
    over.set_value();
    ASSERT_TRUE(info) << info.error().message;
    EXPECT_EQ(info->absent, std::vector<std::size_t>{0});
    EXPECT_EQ(silent.requests().size(), 1U) << "its request was given up, not waited for";
}

}  // namespace
}  // namespace distilld
