#include <gtest/gtest.h>

#include <boost/json/parse.hpp>
#include <cmath>

#include "tests/unit/pipeline/teacher/protocols/prompt_scoring.hpp"

// Replays of what SGLang 0.5.23 answered for a small Llama with 512 tokens, and answers in the flat form of later ones.

namespace distilld {
namespace {

using namespace std::chrono_literals;
using test::base64;
using test::batch_of_prompts;
using test::floats_of;
using test::ids_of;
using test::listing_server;
using test::Loop;
using test::read_fixture;
using test::recorded_prompts;
using test::ScriptedHttpServer;
using test::ScriptedReply;
using test::SeenRequest;

TeacherSpec sglang_spec(const std::string& url, std::uint32_t top_k) {
    return test::scoring_spec(TeacherProtocol::sglang, url, top_k);
}

std::string refused(const std::string& body, std::shared_ptr<const TokenBatch> tokens, std::uint32_t top_k) {
    return test::refused(TeacherProtocol::sglang, body, std::move(tokens), top_k);
}

ScriptedHttpServer::Handler replay(const std::string& fixture) {
    return [fixture](const SeenRequest&) {
        ScriptedReply reply;
        reply.body = read_fixture(fixture);
        return reply;
    };
}

/// `[[null,7,null],[-1,8,null],…]`.
std::string token_logprobs(const std::vector<std::int32_t>& prompt) {
    std::string text;
    for (std::size_t i = 0; i < prompt.size(); ++i) {
        text += (i == 0 ? "[[null," : ",[-1,") + std::to_string(prompt[i]) + ",null]";
    }
    return text + "]";
}

/// An answer in the flat form: for each token but the first ids 0 to k − 1 with probability 1/(k + 1) each.
std::string flat_sequence(const std::vector<std::int32_t>& prompt, std::uint32_t k, bool encoded) {
    std::vector<float> values;
    std::vector<std::int32_t> ids;
    for (std::size_t token = 1; token < prompt.size(); ++token) {
        for (std::uint32_t i = 0; i < k; ++i) {
            values.push_back(static_cast<float>(-std::log(k + 1.0)));
            ids.push_back(static_cast<std::int32_t>(i));
        }
    }
    std::string flat;
    if (encoded) {
        flat = R"("input_top_logprobs_val_flat_b64":")" + base64(values) + R"(","input_top_logprobs_idx_flat_b64":")" +
               base64(ids) +
               R"(","input_top_logprobs_val_flat_b64_dtype":"float32","input_top_logprobs_idx_flat_b64_dtype":"int32")";
    } else {
        std::string value_list;
        std::string id_list;
        for (std::size_t i = 0; i < values.size(); ++i) {
            value_list += (i > 0 ? "," : "") + std::to_string(values[i]);
            id_list += (i > 0 ? "," : "") + std::to_string(ids[i]);
        }
        flat =
            R"("input_top_logprobs_val_flat":[)" + value_list + R"(],"input_top_logprobs_idx_flat":[)" + id_list + "]";
    }
    return R"({"text":"","meta_info":{"input_token_logprobs":)" + token_logprobs(prompt) +
           R"(,"input_top_logprobs":null,)" + flat + R"(,"input_top_logprobs_shape":[)" +
           std::to_string(prompt.size() - 1) + "," + std::to_string(k) + R"(],"input_top_logprobs_null_prefix":1}})";
}

ScriptedReply flat_answer(const SeenRequest& request, bool encoded) {
    const auto k = boost::json::parse(request.body).at("top_logprobs_num").to_number<std::uint32_t>();
    std::string sequences;
    for (const auto& prompt : test::prompts_in(request, "input_ids")) {
        sequences += (sequences.empty() ? "" : ",") + flat_sequence(prompt, k, encoded);
    }
    ScriptedReply reply;
    reply.body = "[" + sequences + "]";
    return reply;
}

TEST(Sglang, RecordedAnswersAreTheReference) {
    for (const auto& [fixture, prompts] :
         {std::pair{"sglang-generate-k5.json", 1U}, std::pair{"sglang-generate-k5-max0.json", 1U},
          std::pair{"sglang-generate-batch3.json", 3U}}) {
        ScriptedHttpServer server(replay(fixture));
        Loop loop;
        const auto teacher = loop.teacher(sglang_spec(server.url(), 5)).value();
        const auto targets = loop.fetch(*teacher, 0, batch_of_prompts(recorded_prompts(prompts)), 20s).value();
        ASSERT_EQ(targets.columns, 9U);
        ASSERT_EQ(targets.width, 5U);
        test::expect_reference(targets, prompts);
    }
}

TEST(Sglang, AsksForPromptRowsInBase64) {
    ScriptedHttpServer server(replay("sglang-generate-k5.json"));
    Loop loop;
    const auto teacher = loop.teacher(sglang_spec(server.url(), 5)).value();
    ASSERT_TRUE(loop.fetch(*teacher, 0, batch_of_prompts(recorded_prompts(1)), 20s));
    const auto request = server.requests().at(0);
    EXPECT_EQ(request.target, "/generate");
    EXPECT_EQ(request.body,
              R"({"input_ids":[[54,74,271,345,417,331,289,414,491,29]],"sampling_params":{"max_new_tokens":0,)"
              R"("temperature":0},"return_logprob":true,"logprob_start_len":0,"return_flat_raw_top_logprobs":true,)"
              R"("return_flat_raw_top_logprobs_b64":true,"top_logprobs_num":5})");
}

TEST(Sglang, FlatRowsAreReadInBothForms) {
    for (const bool encoded : {true, false}) {
        ScriptedHttpServer server(listing_server(read_fixture("sglang-models.json"), [&](const SeenRequest& request) {
            return flat_answer(request, encoded);
        }));
        Loop loop;
        const auto teacher = loop.teacher(sglang_spec(server.url(), 4)).value();
        const auto info = loop.run(teacher->probe(512)).value();
        EXPECT_EQ(info.top_k, 4U);
        EXPECT_TRUE(info.deterministic);
        const auto targets = loop.fetch(*teacher, 0, test::make_batch(2, 3), 20s).value();
        EXPECT_EQ(ids_of(targets.ids).size(), 24U);
        EXPECT_EQ(ids_of(targets.ids)[7], 3U);
        EXPECT_NEAR(floats_of(targets.values)[23], -std::log(5.0), 1e-5);
        const AnswerSize size = teacher->answer_size(2, 3);
        EXPECT_GE(*size.max_wire_bytes, targets.wire_bytes);
        EXPECT_EQ(size.held_bytes, targets.held_bytes);
        // Above its context: told before it is sent.
        const auto refusal = loop.fetch(*teacher, 0, test::make_batch(1, 512), 20s);
        ASSERT_FALSE(refusal);
        EXPECT_NE(refusal.error().message.find("/dataset/sequence_length"), std::string::npos);
    }
}

TEST(Sglang, NeverAsksForMoreThanTheVocabulary) {
    // A k above the vocabulary ends an SGLang process.
    ScriptedHttpServer server(listing_server(read_fixture("sglang-models.json"),
                                             [](const SeenRequest& request) { return flat_answer(request, true); }));
    Loop loop;
    const auto teacher = loop.teacher(sglang_spec(server.url(), 600)).value();
    ASSERT_TRUE(loop.run(teacher->probe(20)));
    for (const auto& request : server.requests()) {
        if (request.target == "/generate") {
            EXPECT_NE(request.body.find(R"("top_logprobs_num":20})"), std::string::npos) << request.body;
        }
    }
}

TEST(Sglang, ALimitThatNoPageTellsIsFoundByTheProbe) {
    // Of a context of 512 tokens it takes 506.
    ScriptedHttpServer server(listing_server(read_fixture("sglang-models.json"), [](const SeenRequest& request) {
        if (test::prompts_in(request, "input_ids").front().size() <= 506) {
            return flat_answer(request, true);
        }
        ScriptedReply reply;
        reply.status = 400;
        reply.body = read_fixture("sglang-err-511.json");
        return reply;
    }));
    for (const std::uint32_t columns : {506U, 507U}) {
        Loop loop;
        RemoteTeacherOptions options;
        options.batch_columns = columns;
        const auto teacher = loop.teacher(sglang_spec(server.url(), 4), options).value();
        const auto info = loop.run(teacher->probe(512));
        EXPECT_EQ(info.has_value(), columns == 506);
        if (!info) {
            EXPECT_NE(info.error().message.find("506 tokens"), std::string::npos) << info.error().message;
            EXPECT_NE(info.error().message.find("/dataset/sequence_length"), std::string::npos) << info.error().message;
        }
    }
}

TEST(Sglang, RefusesRowsThatCannotBeTrusted) {
    const std::vector<std::int32_t> prompt{7, 8, 9};
    const auto batch = batch_of_prompts({prompt});
    const std::string tokens = R"({"meta_info":{"input_token_logprobs":)" + token_logprobs(prompt);
    const auto nested = [&](const std::string& rows) { return tokens + R"(,"input_top_logprobs":)" + rows + "}}"; };
    const std::string row = "[[-1,3,null],[-2,4,null]]";
    std::string flat = flat_sequence(prompt, 2, true);
    const auto changed = [&](const std::string& from, const std::string& to) {
        std::string text = flat;
        const auto at = text.find(from);
        EXPECT_NE(at, std::string::npos) << from;
        return text.replace(at, from.size(), to);
    };
    const std::vector<test::RefusedAnswer> cases{
        {read_fixture("sglang-prompt_logprobs-ignored.json"), "'meta_info'"},
        {read_fixture("sglang-generate-defaultstart.json"), "0 entries, the prompt has 3"},
        {read_fixture("sglang-generate-k5.json"), "not of the prompt"},
        {nested("[null," + row + "]"), "2 entries"},
        {nested("[null," + row + "," + row + "," + row + "]"), "more than the 3"},
        {nested("[" + row + "," + row + ",null]"), "not aligned"},
        {nested("[null,[[-1,3,null]]," + row + "]"), "1 log-probabilities"},
        {nested("[null,[[-1],[-2,4,null]]," + row + "]"), "is not [log-probability, id, text]"},
        {nested("[null,[[null,3,null],[-2,4,null]]," + row + "]"), "null for a log-probability"},
        {nested("[null,[[-1,-3,null],[-2,4,null]]," + row + "]"), "invalid id"},
        {nested("[null,[[\"x\",3,null],[-2,4,null]]," + row + "]"), "not a number"},
        {nested("null"), "no 'input_top_logprobs'"},
        {nested("[]"), "no 'input_top_logprobs'"},
        {R"({"meta_info":{"input_top_logprobs":[null,)" + row + "," + row + "]}}", "'input_token_logprobs'"},
        {R"({"text":"x"})", "'meta_info'"},
        {changed("null_prefix\":1", "null_prefix\":0"), "after 0 without"},
        {changed("_shape\":[2,2]", "_shape\":[2,3]"), "3 for each"},
        {changed("_shape\":[2,2]", "_shape\":[2,18446744073709551615]"), "flat rows"},
        {changed("_shape\":[2,2]", "_shape\":[4]"), "no shape"},
        {changed("float32", "float64"), "not float32"},
        {changed("int32", "int64"), "not int32"},
        {changed("idx_flat_b64\":\"", "idx_flat_b64\":\"#"), "not base64"},
        {changed("idx_flat_b64\":\"", "idx_flat_b64\":\"AAAA"), "whole numbers"},
        {"[" + flat + "," + flat + "]", "more than the 1"},
        {"[]", "0 sequences"},
        {"3", "not an array"},
        {"", "JSON"},
        {"<html>", "JSON"},
    };
    test::expect_refused(TeacherProtocol::sglang, cases, batch, 2);
    const std::string later =
        refused(read_fixture("sglang-generate-start4.json"), batch_of_prompts(recorded_prompts(1)), 5);
    EXPECT_NE(later.find("input_token_logprobs"), std::string::npos) << later;
}

TEST(Sglang, ATruncatedAnswerIsNeverTaken) {
    test::expect_beginnings_refused(TeacherProtocol::sglang, read_fixture("sglang-generate-k5.json"));
}

TEST(Sglang, PathsOfOtherRoutesAreRefused) {
    Loop loop;
    const auto teacher = loop.teacher(sglang_spec("http://127.0.0.1:9/v1/completions", 4));
    ASSERT_FALSE(teacher);
    EXPECT_NE(teacher.error().message.find("/generate"), std::string::npos) << teacher.error().message;
}

}  // namespace
}  // namespace distilld
