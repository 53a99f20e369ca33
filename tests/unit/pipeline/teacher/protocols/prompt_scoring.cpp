#include "tests/unit/pipeline/teacher/protocols/prompt_scoring.hpp"

#include <boost/json/parse.hpp>
#include <boost/json/value_to.hpp>

namespace distilld::test {
namespace json = boost::json;

std::shared_ptr<const TokenBatch> batch_of_prompts(const std::vector<std::vector<std::int32_t>>& prompts) {
    auto batch = std::make_shared<TokenBatch>();
    batch->rows = static_cast<std::uint32_t>(prompts.size());
    batch->columns = static_cast<std::uint32_t>(prompts.front().size() - 1);
    for (const auto& prompt : prompts) {
        EXPECT_EQ(prompt.size(), batch->columns + 1U);
        batch->input_ids.insert(batch->input_ids.end(), prompt.begin(), prompt.end() - 1);
        batch->labels.insert(batch->labels.end(), prompt.begin() + 1, prompt.end());
        batch->lengths.push_back(static_cast<std::int32_t>(batch->columns));
    }
    batch->target_tokens = batch->labels.size();
    return batch;
}

std::vector<std::vector<std::int32_t>> recorded_prompts(std::size_t count) {
    std::vector<std::vector<std::int32_t>> prompts;
    const json::value reference = json::parse(read_fixture("reference.json"));
    for (std::size_t i = 0; i < count; ++i) {
        prompts.push_back(json::value_to<std::vector<std::int32_t>>(reference.at(i).at("prompt")));
    }
    return prompts;
}

std::vector<std::vector<std::int32_t>> prompts_in(const SeenRequest& request, const char* member) {
    const json::value ids = json::parse(request.body).at(member);
    if (ids.at(0).is_array()) {
        return json::value_to<std::vector<std::vector<std::int32_t>>>(ids);
    }
    return {json::value_to<std::vector<std::int32_t>>(ids)};
}

void expect_reference(const TeacherTargets& targets, std::size_t prompts) {
    ASSERT_EQ(targets.kind, TeacherTargets::Kind::topk);
    ASSERT_EQ(targets.rows, prompts);
    EXPECT_TRUE(targets.loss_mask.bytes.empty());
    const auto ids = ids_of(targets.ids);
    const auto values = floats_of(targets.values);
    const json::value reference = json::parse(read_fixture("reference.json"));
    for (std::size_t row = 0; row < prompts; ++row) {
        for (std::size_t column = 0; column < targets.columns; ++column) {
            const json::value& truth = reference.at(row).at("rows").at(column);
            for (std::size_t i = 0; i < targets.width; ++i) {
                const std::size_t at = (row * targets.columns + column) * targets.width + i;
                EXPECT_EQ(ids[at], truth.at("ids").at(i).to_number<std::uint32_t>()) << row << ' ' << column;
                EXPECT_NEAR(values[at], truth.at("log_probabilities").at(i).to_number<double>(), 1e-4)
                    << row << ' ' << column;
            }
        }
    }
}

TeacherSpec scoring_spec(TeacherProtocol protocol, const std::string& url, std::uint32_t top_k) {
    TeacherSpec spec;
    spec.endpoints = {url};
    spec.protocol = protocol;
    spec.model = "teacher";
    spec.top_k = top_k;
    spec.timeout_secs = 30;
    return spec;
}

ScriptedHttpServer::Handler listing_server(std::string models, ScriptedHttpServer::Handler answer) {
    return [models = std::move(models), answer = std::move(answer)](const SeenRequest& request) {
        ScriptedReply reply;
        const bool is_page = request.method == "GET" && request.target != "/v1/models";
        if (is_page || request.target == "/tokenize" || request.body == "{}") {
            reply.status = 404;
            return reply;
        }
        if (request.target != "/v1/models") {
            return answer(request);
        }
        reply.body = models;
        return reply;
    };
}

std::string refused(TeacherProtocol protocol, const std::string& body, std::shared_ptr<const TokenBatch> tokens,
                    std::uint32_t top_k) {
    ScriptedHttpServer server([&](const SeenRequest&) {
        ScriptedReply reply;
        reply.body = body;
        return reply;
    });
    Loop loop;
    const auto teacher = loop.teacher(scoring_spec(protocol, server.url(), top_k)).value();
    const auto targets = loop.fetch(*teacher, 0, std::move(tokens), std::chrono::seconds(20));
    if (targets) {
        ADD_FAILURE() << "taken: " << body.substr(0, 200);
        return {};
    }
    EXPECT_EQ(targets.error().kind, FailureKind::bad_response) << targets.error().message;
    EXPECT_NE(targets.error().message.find("127.0.0.1"), std::string::npos) << targets.error().message;
    return targets.error().message;
}

void expect_refused(TeacherProtocol protocol, const std::vector<RefusedAnswer>& answers,
                    const std::shared_ptr<const TokenBatch>& tokens, std::uint32_t top_k) {
    for (const RefusedAnswer& answer : answers) {
        const std::string text = refused(protocol, answer.body, tokens, top_k);
        EXPECT_NE(text.find(answer.words), std::string::npos) << text << "\nfor " << answer.body.substr(0, 300);
    }
}

void expect_beginnings_refused(TeacherProtocol protocol, const std::string& answer) {
    const auto batch = batch_of_prompts(recorded_prompts(1));
    std::size_t tried = 0;
    for (std::size_t size = 0; size + 200 < answer.size(); size += 397) {
        EXPECT_FALSE(refused(protocol, answer.substr(0, size), batch, 5).empty()) << size;
        ++tried;
    }
    EXPECT_GT(tried, 3U);
}

}  // namespace distilld::test
