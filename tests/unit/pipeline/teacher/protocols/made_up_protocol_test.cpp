#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <sstream>

#include "pipeline/core/target_rows.hpp"
#include "pipeline/teacher/protocols/registry.hpp"
#include "tests/unit/pipeline/teacher/teacher_fixture.hpp"

// How a protocol is added: an adapter, a codec and a row. This one is made up. Its server takes one sequence a request,
// without padding, as a line of ids, and answers a line of "id logprob" for each position. What it calls itself comes
// in a header of GET /about.

namespace distilld {
namespace {

using namespace std::chrono_literals;
namespace asio = boost::asio;
using test::floats_of;
using test::ids_of;
using test::Loop;
using test::make_batch;
using test::ScriptedHttpServer;
using test::ScriptedReply;
using test::SeenRequest;

class LinesCodec final : public TeacherCodec {
  public:
    LinesCodec(std::string target, std::string server) : target_(std::move(target)), server_(std::move(server)) {}

    Result<std::vector<RequestPart>> plan_requests(const TokenBatch& tokens) const override {
        std::vector<RequestPart> parts;
        for (std::uint32_t row = 0; row < tokens.rows; ++row) {
            parts.push_back({row, 1, 0, static_cast<std::uint32_t>(tokens.lengths[row])});
        }
        return parts;
    }

    Result<HttpRequest> make_request(const TokenBatch& tokens, const RequestPart& part) const override {
        auto body = std::make_shared<std::string>();
        for (const std::int32_t id : input_ids_of(tokens, part)) {
            *body += std::to_string(id) + " ";
        }
        HttpRequest request;
        request.target = target_;
        request.content_type = "text/plain";
        request.headers = {{"Lines-Wanted", std::to_string(part.columns)}};
        request.body = std::move(body);
        return request;
    }

    Result<TeacherTargets> decode(const HttpResponse& response, const TokenBatch&,
                                  const RequestPart& part) const override {
        struct Arrays {
            std::vector<std::uint32_t> ids;
            std::vector<float> logprobs;
        };
        auto arrays = std::make_shared<Arrays>();
        const auto bytes = response.body->bytes();
        std::istringstream lines(std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
        std::uint32_t id = 0;
        float logprob = 0;
        while (lines >> id >> logprob) {
            arrays->ids.push_back(id);
            arrays->logprobs.push_back(logprob);
        }
        if (arrays->ids.size() != part.columns) {
            return teacher_error("the answer has " + std::to_string(arrays->ids.size()) + " lines");
        }
        TeacherTargets targets;
        targets.rows = part.rows;
        targets.columns = part.columns;
        targets.width = 1;
        targets.ids = {ElementType::u32, std::as_bytes(std::span(arrays->ids))};
        targets.values = {ElementType::f32, std::as_bytes(std::span(arrays->logprobs))};
        targets.owner = std::move(arrays);
        return targets;
    }

    AnswerSize answer_size(std::uint32_t rows, std::uint32_t columns) const override {
        const std::uint64_t positions = std::uint64_t{rows} * columns;
        return {positions * 24 + 64, positions * 8};
    }

    std::string description() const override { return "lines of " + server_; }

  private:
    std::string target_;
    std::string server_;
};

class LinesAdapter final : public TeacherProtocolAdapter {
  public:
    explicit LinesAdapter(std::string target) : target_(std::move(target)) {}

    Result<std::shared_ptr<const TeacherCodec>> assumed_codec(TargetsWanted) const override {
        return std::shared_ptr<const TeacherCodec>(std::make_shared<LinesCodec>(target_, "somebody"));
    }

    asio::awaitable<FetchResult<Negotiated>> negotiate(ProbeDialogue& dialogue, TargetsWanted) const override {
        HttpRequest question = make_get("/about");
        question.answer_headers = {"Line-Server"};
        const auto about = co_await dialogue.send(std::move(question), 425U);
        if (!about) {
            co_return about.error();
        }
        const std::string* server = about->header("Line-Server");
        Negotiated negotiated;
        negotiated.codec = std::make_shared<LinesCodec>(target_, server != nullptr ? *server : "nobody");
        auto answer = co_await dialogue.ask(negotiated.codec);
        if (!answer) {
            co_return failed_probe(answer.error());
        }
        negotiated.answer = std::move(answer->targets);
        co_return negotiated;
    }

  private:
    std::string target_;
};

Result<std::unique_ptr<TeacherProtocolAdapter>> make_lines_adapter(const ProtocolSettings& settings) {
    return std::unique_ptr<TeacherProtocolAdapter>(std::make_unique<LinesAdapter>(settings.url.target()));
}

constexpr auto kLines = static_cast<TeacherProtocol>(1000);
constexpr std::array kRows{TeacherProtocolRow{kLines, "lines", "/lines/{model}", make_lines_adapter}};

/// The token after id i is i + 1 with probability 1/2.
ScriptedReply lines_reply(const SeenRequest& request) {
    ScriptedReply reply;
    if (request.method == "GET") {
        reply.headers = {{"line-server", "the made-up server"}};
        return reply;
    }
    std::istringstream ids(request.body);
    int id = 0;
    while (ids >> id) {
        reply.body += std::to_string(id + 1) + " -0.6931472\n";
    }
    return reply;
}

struct LinesTeacher {
    explicit LinesTeacher(const ScriptedHttpServer& server) {
        TeacherSpec spec;
        spec.endpoints = {server.url()};
        spec.protocol = kLines;
        spec.model = "m";
        spec.top_k = 1;
        spec.timeout_secs = 30;
        RemoteTeacherOptions options;
        options.protocols = kRows;
        source = loop.teacher(spec, options).value();
    }
    Loop loop;
    std::unique_ptr<TeacherSource> source;
};

/// Two padded sequences between full ones.
std::shared_ptr<TokenBatch> padded_batch() {
    auto batch = std::make_shared<TokenBatch>(*make_batch(3, 3));  // 1 2 3, 4 5 6, 7 8 9
    batch->lengths = {3, 1, 2};
    batch->labels[4] = batch->labels[5] = batch->labels[8] = kIgnoredLabel;
    return batch;
}

TEST(MadeUpProtocol, IsProbedAndAsksOneRequestASequence) {
    ScriptedHttpServer server(lines_reply);
    LinesTeacher teacher(server);
    const auto info = teacher.loop.run(teacher.source->probe(20)).value();
    EXPECT_NE(info.description.find("lines of the made-up server"), std::string::npos) << info.description;
    EXPECT_EQ(info.top_k, 1U);
    const std::size_t before = server.requests().size();
    EXPECT_EQ(before, 1U + 2U) << "/about, and the probe's tokens twice";

    const auto targets = teacher.loop.fetch(*teacher.source, 0, padded_batch(), 20s).value();
    const auto requests = server.requests();
    ASSERT_EQ(requests.size(), before + 3);
    EXPECT_EQ(requests[before].target, "/lines/m");
    EXPECT_EQ(requests[before].body, "1 2 3 ");
    EXPECT_EQ(requests[before + 1].body, "4 ") << "padding is not sent";
    EXPECT_EQ(requests[before + 2].body, "7 8 ");
    EXPECT_EQ(requests[before + 2].headers.at("lines-wanted"), "2");
    EXPECT_EQ(server.connections(), 1U) << "one after the other";

    EXPECT_EQ(targets.rows, 3U);
    EXPECT_EQ(targets.columns, 3U);
    const auto ids = ids_of(targets.ids);
    const auto logprobs = floats_of(targets.values);
    const std::vector<std::uint32_t> expected{2, 3, 4, 5, 0, 0, 8, 9, 0};
    ASSERT_EQ(ids.size(), expected.size());
    for (std::size_t row = 0; row < expected.size(); ++row) {
        EXPECT_EQ(row_is_given(targets, row), expected[row] != 0) << row;
        if (expected[row] != 0) {
            EXPECT_EQ(ids[row], expected[row]) << row;
            EXPECT_NEAR(logprobs[row], std::log(0.5), 1e-6) << row;
        }
    }
    EXPECT_EQ(teacher.source->answer_size(3, 3).held_bytes, 72U);
}

TEST(MadeUpProtocol, RowsThatAreMissingMustCarryNoLoss) {
    ScriptedHttpServer server(lines_reply);
    LinesTeacher teacher(server);
    auto batch = padded_batch();
    batch->labels[8] = 1;
    const auto refused = teacher.loop.fetch(*teacher.source, 0, batch, 20s);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().kind, FailureKind::bad_response);
    EXPECT_NE(refused.error().message.find("sequence 2, position 2: the teacher sent no row"), std::string::npos)
        << refused.error().message;
}

TEST(MadeUpProtocol, TheDeadlineIsOfAllRequestsTogether) {
    int asked = 0;
    ScriptedHttpServer server([&asked](const SeenRequest& request) {
        auto reply = lines_reply(request);
        if (++asked == 2) {
            reply.delay = 10min;
        }
        return reply;
    });
    LinesTeacher teacher(server);
    const auto late = teacher.loop.fetch(*teacher.source, 0, padded_batch(), 300ms);
    ASSERT_FALSE(late);
    EXPECT_EQ(late.error().kind, FailureKind::timeout);
    EXPECT_NE(late.error().message.find("0.3 s"), std::string::npos) << late.error().message;
}

TEST(MadeUpProtocol, ItsLoadingStatusIsWaitedFor) {
    int asked = 0;
    ScriptedHttpServer server([&asked](const SeenRequest& request) {
        auto reply = lines_reply(request);
        reply.status = ++asked == 1 ? 425 : 200;
        return reply;
    });
    LinesTeacher teacher(server);
    ASSERT_TRUE(teacher.loop.run(teacher.source->probe(20)));
    EXPECT_EQ(asked, 2 + 2);
}

}  // namespace
}  // namespace distilld
