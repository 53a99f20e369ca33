#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include <boost/json/parse.hpp>

#include "tests/unit/pipeline/teacher/protocols/prompt_scoring.hpp"

// Answers in the form that trl 1.16's own client reads.

namespace distilld {
namespace {

using namespace std::chrono_literals;
using test::base64;
using test::batch_of_prompts;
using test::floats_of;
using test::ids_of;
using test::Loop;
using test::ScriptedHttpServer;
using test::ScriptedReply;
using test::SeenRequest;

struct Parts {
    std::vector<float> values;
    std::vector<std::int32_t> ids;
    std::vector<std::int32_t> own;
    std::string shape;
    std::string lengths;
};

/// Rows for each token but the first: ids 0 to k − 1 with probability 1/(k + 1) each; padded as numpy arrays are.
Parts parts_of(const std::vector<std::vector<std::int32_t>>& prompts, std::uint32_t k) {
    std::size_t longest = 0;
    for (const auto& prompt : prompts) {
        longest = std::max(longest, prompt.size() - 1);
    }
    Parts parts;
    for (const auto& prompt : prompts) {
        for (std::size_t row = 0; row < longest; ++row) {
            const bool padding = row + 1 >= prompt.size();
            for (std::uint32_t i = 0; i < k; ++i) {
                parts.values.push_back(padding ? -std::numeric_limits<float>::infinity()
                                               : static_cast<float>(-std::log(k + 1.0)));
                parts.ids.push_back(padding ? 0 : static_cast<std::int32_t>(i));
            }
            parts.own.push_back(padding ? 0 : prompt[row + 1]);
        }
        parts.lengths += (parts.lengths.empty() ? "" : ",") + std::to_string(prompt.size() - 1);
    }
    parts.shape = std::to_string(prompts.size()) + "," + std::to_string(longest) + "," + std::to_string(k);
    return parts;
}

std::string answer_of(const Parts& parts) {
    return R"({"logprobs":null,"logprob_token_ids":null,"logprobs_b64":")" + base64(parts.values) +
           R"(","token_ids_b64":")" + base64(parts.ids) + R"(","actual_logprobs_b64":"AAAA","actual_token_ids_b64":")" +
           base64(parts.own) + R"(","shape":[)" + parts.shape + R"(],"completion_lengths":[)" + parts.lengths + "]}";
}

ScriptedReply trl(const SeenRequest& request) {
    const auto k = boost::json::parse(request.body).at("top_logprobs").to_number<std::uint32_t>();
    ScriptedReply reply;
    reply.body = answer_of(parts_of(test::prompts_in(request, "sequences"), k));
    return reply;
}

TEST(Trl, AsksForARowForEachTokenAndReadsThem) {
    ScriptedHttpServer server(trl);
    Loop loop;
    const auto teacher = loop.teacher(test::scoring_spec(TeacherProtocol::trl, server.url(), 3)).value();
    const auto info = loop.run(teacher->probe(512)).value();
    EXPECT_EQ(info.top_k, 3U);
    EXPECT_NE(info.description.find("TRL, top 3"), std::string::npos) << info.description;
    auto batch = std::make_shared<TokenBatch>(*batch_of_prompts({{7, 8, 9}, {4, 5, 6}}));
    batch->lengths = {2, 1};  // the second is padded
    batch->labels[3] = kIgnoredLabel;
    const auto targets = loop.fetch(*teacher, 0, batch, 20s).value();
    const auto request = server.requests().back();
    EXPECT_EQ(request.target, "/get_sequence_logprobs/");
    EXPECT_EQ(request.body,
              R"({"sequences":[[7,8,9],[4,5]],"prompt_lengths":[1,1],"temperature":1.0,"response_format":"binary",)"
              R"("top_logprobs":3})");
    EXPECT_EQ(ids_of(targets.ids).at(2), 2U);
    EXPECT_NEAR(floats_of(targets.values).at(0), -std::log(4.0), 1e-6);
    ASSERT_EQ(targets.loss_mask.bytes.size(), 4U);
    EXPECT_EQ(targets.loss_mask.bytes[3], std::byte{0});
    const AnswerSize size = teacher->answer_size(2, 2);
    EXPECT_GE(*size.max_wire_bytes, targets.wire_bytes);
    EXPECT_EQ(size.held_bytes, targets.held_bytes);
}

TEST(Trl, RefusesRowsThatCannotBeTrusted) {
    const std::vector<std::vector<std::int32_t>> prompts{{7, 8, 9}};
    const auto changed = [&](auto change) {
        Parts parts = parts_of(prompts, 2);
        change(parts);
        return answer_of(parts);
    };
    const std::vector<test::RefusedAnswer> cases{
        {R"({"logprobs":[[[-1,-2]]],"logprob_token_ids":[[[1,2]]]})", "ignored"},
        {"{}", "ignored"},
        {"[]", "not a JSON object"},
        {"", "JSON"},
        {changed([](Parts& parts) { parts.shape = "2,2,2"; }), "not of the 1 sequences"},
        {changed([](Parts& parts) { parts.lengths = "2,2"; }), "not of the 1 sequences"},
        {changed([](Parts& parts) { parts.lengths = "1"; }), "1 rows"},
        {changed([](Parts& parts) { parts.shape = "1,2,3"; }), "'shape' says"},
        {changed([](Parts& parts) { parts.shape = "1,9223372036854775808,2"; }), "'shape' says"},
        {changed([](Parts& parts) { parts.shape = "1,2"; }), "not of the 1 sequences"},
        // Rows shifted by one.
        {changed([](Parts& parts) { parts.own = {9, 10}; }), "names token 9"},
        {changed([](Parts& parts) { parts.values[1] = -std::numeric_limits<float>::infinity(); }), "1 log-prob"},
        {changed([](Parts& parts) { parts.own.pop_back(); }), "'shape' says"},
    };
    test::expect_refused(TeacherProtocol::trl, cases, batch_of_prompts(prompts), 2);
}

}  // namespace
}  // namespace distilld
