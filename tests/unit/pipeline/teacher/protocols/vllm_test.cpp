#include <gtest/gtest.h>

#include <algorithm>
#include <boost/json/parse.hpp>
#include <cmath>

#include "tests/unit/pipeline/teacher/protocols/prompt_scoring.hpp"

// Replays of what vLLM 0.32 answered for a small Llama with 512 tokens, and answers of the same form for what was not
// recorded.

namespace distilld {
namespace {

using namespace std::chrono_literals;
using test::batch_of_prompts;
using test::floats_of;
using test::ids_of;
using test::listing_server;
using test::Loop;
using test::read_fixture;
using test::recorded_prompts;
using test::refused;
using test::ScriptedHttpServer;
using test::ScriptedReply;
using test::SeenRequest;

TeacherSpec vllm_spec(const std::string& url, std::uint32_t top_k, TeacherProtocol protocol = TeacherProtocol::vllm) {
    return test::scoring_spec(protocol, url, top_k);
}

/// One entry of `prompt_logprobs`: the prompt's token first, then ids 0 to k − 1; each of probability 1/(k + 1).
std::string entry(std::int32_t own, std::uint32_t k) {
    const std::string value =
        R"(":{"logprob":)" + std::to_string(-std::log(k + 1.0)) + R"(,"rank":1,"decoded_token":"x"})";
    std::string text = "{\"" + std::to_string(own) + value;
    for (std::uint32_t id = 0; id < k; ++id) {
        if (static_cast<std::int32_t>(id) != own) {
            text += ",\"" + std::to_string(id) + value;
        }
    }
    // k + 1 of them, as when the own token is below the k best.
    return text + (own < static_cast<std::int32_t>(k) ? ",\"" + std::to_string(k) + value + "}" : "}");
}

std::string prompt_logprobs(const std::vector<std::int32_t>& prompt, std::uint32_t k) {
    std::string text = "[null";
    for (std::size_t i = 1; i < prompt.size(); ++i) {
        text += "," + entry(prompt[i], k);
    }
    return text + "]";
}

/// -1 are all of a vocabulary of six.
std::uint32_t entries(const boost::json::value& asked) {
    const auto k = asked.to_number<std::int64_t>();
    return k == -1 ? 6 : static_cast<std::uint32_t>(k);
}

/// An answer of vLLM's form to any request, on either route.
ScriptedReply made_up(const SeenRequest& request) {
    ScriptedReply reply;
    if (request.target == "/tokenize" || request.body == "{}") {
        reply.status = 404;
        return reply;
    }
    const boost::json::value asked = boost::json::parse(request.body);
    if (request.target == "/inference/v1/generate") {
        const std::uint32_t k = entries(asked.at("sampling_params").at("prompt_logprobs"));
        reply.body = R"({"request_id":"1","prompt_logprobs":)" +
                     prompt_logprobs(test::prompts_in(request, "token_ids").front(), k) + "}";
        return reply;
    }
    const std::uint32_t k = entries(asked.at("prompt_logprobs"));
    std::string choices;
    std::size_t index = 0;
    for (const auto& prompt : test::prompts_in(request, "prompt")) {
        choices += (index > 0 ? "," : "") + (R"({"index":)" + std::to_string(index)) +
                   R"(,"text":"","prompt_logprobs":)" + prompt_logprobs(prompt, k) + "}";
        ++index;
    }
    reply.body = R"({"id":"1","choices":[)" + choices + "]}";
    return reply;
}

ScriptedHttpServer::Handler vllm(ScriptedHttpServer::Handler answer = made_up) {
    return listing_server(read_fixture("vllm-models.json"), std::move(answer));
}

ScriptedHttpServer::Handler replay(const std::string& fixture) {
    return [fixture](const SeenRequest&) {
        ScriptedReply reply;
        reply.body = read_fixture(fixture);
        return reply;
    };
}

TEST(Vllm, RecordedCompletionsAreTheReference) {
    ScriptedHttpServer server(replay("vllm-completions-k5.json"));
    Loop loop;
    const auto teacher = loop.teacher(vllm_spec(server.url(), 5)).value();
    const auto targets = loop.fetch(*teacher, 0, batch_of_prompts(recorded_prompts(1)), 20s).value();
    ASSERT_EQ(targets.columns, 9U);
    ASSERT_EQ(targets.width, 5U);
    test::expect_reference(targets, 1);
    EXPECT_EQ(server.requests().at(0).target, "/v1/completions");
    EXPECT_EQ(server.requests().at(0).body,
              R"({"model":"teacher","prompt":[[54,74,271,345,417,331,289,414,491,29]],"max_tokens":1,"temperature":0,)"
              R"("prompt_logprobs":5})");
}

TEST(Vllm, RecordedBatchesAndLargerRowsAreTheReference) {
    {
        ScriptedHttpServer server(replay("vllm-completions-batch3.json"));
        Loop loop;
        const auto teacher = loop.teacher(vllm_spec(server.url(), 5)).value();
        const auto targets = loop.fetch(*teacher, 0, batch_of_prompts(recorded_prompts(3)), 20s).value();
        test::expect_reference(targets, 3);
        EXPECT_EQ(server.requests().size(), 1U) << "three prompts are one request";
    }
    ScriptedHttpServer server(replay("vllm-completions-k20.json"));
    Loop loop;
    const auto teacher = loop.teacher(vllm_spec(server.url(), 20)).value();
    const auto targets = loop.fetch(*teacher, 0, batch_of_prompts(recorded_prompts(1)), 20s).value();
    EXPECT_EQ(targets.width, 20U);
    test::expect_reference(targets, 1);
}

TEST(Vllm, RecordedGenerateIsTheReference) {
    ScriptedHttpServer server(replay("vllm-generate.json"));
    Loop loop;
    const auto teacher = loop.teacher(vllm_spec(server.url(), 5, TeacherProtocol::vllm_generate)).value();
    const auto targets = loop.fetch(*teacher, 0, batch_of_prompts(recorded_prompts(1)), 20s).value();
    test::expect_reference(targets, 1);
    EXPECT_EQ(server.requests().at(0).target, "/inference/v1/generate");
    EXPECT_EQ(server.requests().at(0).body,
              R"({"model":"teacher","token_ids":[54,74,271,345,417,331,289,414,491,29],"sampling_params":{)"
              R"("max_tokens":1,"temperature":0,"detokenize":false,"prompt_logprobs":5}})");
}

TEST(Vllm, TheProbePassesAndTheBatchIsSplitAsTheRouteWants) {
    for (const auto protocol : {TeacherProtocol::vllm, TeacherProtocol::vllm_generate}) {
        ScriptedHttpServer server(vllm());
        Loop loop;
        const auto teacher = loop.teacher(vllm_spec(server.url(), 4, protocol)).value();
        const auto info = loop.run(teacher->probe(512)).value();
        EXPECT_EQ(info.top_k, 4U);
        EXPECT_TRUE(info.deterministic);
        EXPECT_NE(info.description.find("vLLM"), std::string::npos) << info.description;
        const std::size_t before = server.requests().size();
        const auto targets = loop.fetch(*teacher, 0, test::make_batch(3, 4), 20s).value();
        EXPECT_EQ(targets.rows, 3U);
        EXPECT_EQ(server.requests().size() - before, protocol == TeacherProtocol::vllm ? 1U : 3U);
        const AnswerSize size = teacher->answer_size(3, 4);
        ASSERT_TRUE(size.max_wire_bytes);
        EXPECT_GE(*size.max_wire_bytes, targets.wire_bytes);
        EXPECT_LT(*size.max_wire_bytes, size.max_accepted_bytes) << "the probe told how large an entry is";
        EXPECT_GE(size.held_bytes, targets.held_bytes);
    }
}

// What the server makes of a fixed text is compared by whoever knows the student's tokenizer.
TEST(Vllm, TheProbeAsksWhatTheServerMakesOfAText) {
    const auto rows = vllm();
    ScriptedHttpServer server([&](const SeenRequest& request) {
        ScriptedReply reply;
        reply.body = read_fixture("vllm-tokenize.json");
        return request.target == "/tokenize" ? reply : rows(request);
    });
    Loop loop;
    const auto teacher = loop.teacher(vllm_spec(server.url(), 4)).value();
    const auto info = loop.run(teacher->probe(512)).value();
    EXPECT_EQ(info.tokenizer.ids,
              (std::vector<std::int32_t>{54, 74, 271, 345, 417, 331, 289, 414, 491, 29, 316, 274, 290}));
    bool asked = false;
    for (const SeenRequest& request : server.requests()) {
        if (request.target == "/tokenize") {
            asked = true;
            const boost::json::value body = boost::json::parse(request.body);
            EXPECT_EQ(body.at("model").as_string(), "teacher");
            EXPECT_EQ(body.at("prompt").as_string(), kTokenizerText);
            EXPECT_FALSE(body.at("add_special_tokens").as_bool());
        }
    }
    EXPECT_TRUE(asked);
}

TEST(Vllm, AServerThatDoesNotTokenizeTellsNothing) {
    for (const std::string body :
         {"", "{}", "[1]", R"({"tokens":"x"})", R"({"tokens":[1,"x"]})", R"({"tokens":[-1.5]})"}) {
        const auto rows = vllm();
        ScriptedHttpServer server([&](const SeenRequest& request) {
            ScriptedReply reply;
            reply.body = body;
            return request.target == "/tokenize" ? reply : rows(request);
        });
        Loop loop;
        const auto teacher = loop.teacher(vllm_spec(server.url(), 4)).value();
        EXPECT_TRUE(loop.run(teacher->probe(512)).value().tokenizer.ids.empty()) << body;
    }
}

TEST(Vllm, ACheaperRouteIsPointedOut) {
    const auto rows = vllm();
    for (const bool there : {false, true}) {
        ScriptedHttpServer server([&](const SeenRequest& request) {
            ScriptedReply reply;
            reply.status = there ? 400 : 403;
            return request.body == "{}" ? reply : rows(request);
        });
        Loop loop;
        const auto teacher = loop.teacher(vllm_spec(server.url(), 4)).value();
        const auto info = loop.run(teacher->probe(512)).value();
        ASSERT_EQ(info.notes.size(), 1U);
        EXPECT_EQ(info.notes.front().find("vllm serve --enable-scale-out") == std::string::npos, there)
            << info.notes.front();
        EXPECT_NE(info.notes.front().find(there ? "/teacher/protocol auto uses it"
                                                : "/teacher/protocol auto then uses that route"),
                  std::string::npos);
    }
    ScriptedHttpServer server(vllm());
    Loop loop;
    const auto teacher = loop.teacher(vllm_spec(server.url(), 4, TeacherProtocol::vllm_generate)).value();
    EXPECT_TRUE(loop.run(teacher->probe(512)).value().notes.empty());
}

// A request of this route takes one sequence, and the server batches what comes at once: four round trips are not made
// one after the other.
TEST(Vllm, SequencesOfAMicroBatchAreUnderWayAtOnce) {
    ScriptedHttpServer server(vllm());
    Loop loop;
    const auto teacher = loop.teacher(vllm_spec(server.url(), 4, TeacherProtocol::vllm_generate)).value();
    ASSERT_TRUE(loop.run(teacher->probe(512)));
    const auto batch = test::make_batch(4, 6);
    const auto targets = loop.fetch(*teacher, 0, batch, 20s).value();
    EXPECT_EQ(server.connections(), 4U);
    // Each answer is of its own sequence, whichever came first: the prompt's own token is in each row.
    EXPECT_EQ(targets.rows, 4U);
    EXPECT_TRUE(loop.fetch(*teacher, 0, test::make_batch(20, 6), 20s));
    EXPECT_EQ(server.connections(), 8U) << "no more than eight of a micro-batch";
}

TEST(Vllm, AFailureOfOneSequenceEndsTheMicroBatch) {
    int asked = 0;
    bool fails = false;
    ScriptedHttpServer server(vllm([&](const SeenRequest& request) {
        ScriptedReply reply = made_up(request);
        if (fails && ++asked == 2) {
            reply.status = 500;
            reply.body = R"({"error":"out of memory"})";
        } else if (fails) {
            reply.delay = 10min;
        }
        return reply;
    }));
    Loop loop;
    const auto teacher = loop.teacher(vllm_spec(server.url(), 4, TeacherProtocol::vllm_generate)).value();
    ASSERT_TRUE(loop.run(teacher->probe(512)));
    fails = true;
    const auto failed = loop.fetch(*teacher, 0, test::make_batch(4, 6), 20s);
    ASSERT_FALSE(failed);
    EXPECT_EQ(failed.error().kind, FailureKind::server_error);
    EXPECT_NE(failed.error().message.find("out of memory"), std::string::npos) << failed.error().message;
    const auto late = loop.fetch(*teacher, 0, test::make_batch(4, 6), 300ms);
    ASSERT_FALSE(late);
    EXPECT_EQ(late.error().kind, FailureKind::timeout);
}

TEST(Vllm, FullLogitsAreAllLogProbabilities) {
    ScriptedHttpServer server(vllm([](const SeenRequest& request) {
        EXPECT_NE(request.body.find(R"("prompt_logprobs":-1)"), std::string::npos) << request.body;
        const std::string row =
            R"({"5":{"logprob":-6},"0":{"logprob":-1},"1":{"logprob":-2},"2":{"logprob":-3},"3":{"logprob":-4},)"
            R"("4":{"logprob":-5}})";
        ScriptedReply reply;
        reply.body = R"({"choices":[{"index":0,"prompt_logprobs":[null,)" + row + "," + row + "]}]}";
        return reply;
    }));
    Loop loop;
    const auto teacher = loop.teacher(vllm_spec(server.url(), 0)).value();
    const auto info = loop.run(teacher->probe(6)).value();
    EXPECT_EQ(info.vocabulary_size, 6U);
    const auto targets = loop.fetch(*teacher, 0, batch_of_prompts({{1, 2, 5}}), 20s).value();
    EXPECT_EQ(targets.kind, TeacherTargets::Kind::logits);
    EXPECT_EQ(floats_of(targets.values), (std::vector<float>{-1, -2, -3, -4, -5, -6, -1, -2, -3, -4, -5, -6}));
}

TEST(Vllm, FullLogitsOfAPaddedVocabularyAreCut) {
    ScriptedHttpServer server(vllm([](const SeenRequest& request) {
        std::string row;
        for (int id = 65; id >= 0; --id) {
            row += (row.empty() ? "{\"" : ",\"") + std::to_string(id) + R"(":{"logprob":)" + std::to_string(-id) + "}";
        }
        row += "}";
        ScriptedReply reply;
        reply.body = R"({"choices":[{"index":0,"prompt_logprobs":[null,)" + row + "," + row + "]}]}";
        return reply;
    }));
    Loop loop;
    const auto teacher = loop.teacher(vllm_spec(server.url(), 0)).value();
    ASSERT_TRUE(loop.run(teacher->probe(64)));
    const auto targets = loop.fetch(*teacher, 0, batch_of_prompts({{1, 2, 5}}), 20s).value();
    ASSERT_EQ(targets.width, 64U);
    EXPECT_EQ(floats_of(targets.values).at(63), -63);
    // Two ids more than padding would be.
    const auto refused = loop.run(teacher->probe(63));
    ASSERT_FALSE(refused);
    EXPECT_NE(refused.error().message.find("names token 6"), std::string::npos) << refused.error().message;
}

TEST(Vllm, PositionsWithoutATokenBehindThemHaveNoRow) {
    auto batch = std::make_shared<TokenBatch>();
    batch->rows = 3;
    batch->columns = 3;
    batch->input_ids = {1, 2, 3, 4, 5, 0, 0, 0, 0};
    // The first ends without a label, the second is padded, the third is nothing but padding.
    batch->labels = {2, 3, kIgnoredLabel, 5, 6, kIgnoredLabel, kIgnoredLabel, kIgnoredLabel, kIgnoredLabel};
    batch->lengths = {3, 2, 0};
    batch->target_tokens = 4;
    ScriptedHttpServer server(made_up);
    Loop loop;
    const auto teacher = loop.teacher(vllm_spec(server.url(), 2)).value();
    const auto targets = loop.fetch(*teacher, 0, batch, 20s).value();
    EXPECT_EQ(test::prompts_in(server.requests().at(0), "prompt"),
              (std::vector<std::vector<std::int32_t>>{{1, 2, 3}, {4, 5, 6}, {0}}));
    std::vector<int> given;
    for (const std::byte mask : targets.loss_mask.bytes) {
        given.push_back(static_cast<int>(mask));
    }
    EXPECT_EQ(given, (std::vector<int>{1, 1, 0, 1, 1, 0, 0, 0, 0}));
}

TEST(Vllm, RefusesRowsThatCannotBeTrusted) {
    const auto batch = batch_of_prompts({{7, 8, 9}});
    const auto answer = [](const std::string& rows) {
        return R"({"choices":[{"index":0,"prompt_logprobs":)" + rows + "}]}";
    };
    const std::string eight = entry(8, 2);
    const std::string nine = entry(9, 2);
    const std::vector<test::RefusedAnswer> cases{
        // A server that does not know the field answers as if it had not been there.
        {read_fixture("sglang-prompt_logprobs-ignored.json"), "ignored"},
        {read_fixture("sglang-generate-k5.json"), "'choices' is not an array"},
        {answer("null"), "is not an array"},
        {answer("[null," + eight + "]"), "2 entries"},
        {answer("[null," + eight + "," + nine + "," + nine + "]"), "more than the 3"},
        // Rows of the tokens themselves, or of the ones before: llama-cpp-python's without a BOS.
        {answer("[" + eight + "," + nine + ",null]"), "not aligned"},
        {answer("[null," + nine + "," + eight + "]"), "own token 8"},
        {answer("[null," + eight + ",null]"), "not an object"},
        {answer(R"([null,{"8":{"logprob":-1},"1":{"logprob":-2}},{"9":{"logprob":-1}}])"), "1 log-prob"},
        {answer(R"([null,{" the":{"logprob":-1},"8":{"logprob":-2}},)" + nine + "]"), "by its text (' the')"},
        {answer(R"([null,{"8":{"logprob":null},"1":{"logprob":-2}},)" + nine + "]"), "id 8"},
        {answer(R"([null,{"8":{"logprob":NaN},"1":{"logprob":-2}},)" + nine + "]"), "id 8"},
        {answer(R"([null,{"8":{"rank":1},"1":{"logprob":-2}},)" + nine + "]"), "id 8"},
        {R"({"choices":[{"index":1,"prompt_logprobs":[]}]})", "order of the prompts"},
        {R"({"choices":[]})", "'choices' has 0"},
        {R"({"choices":[{"prompt_logprobs":[null,)" + eight + "," + nine + "]},{}]}", "more than one"},
        {R"({"object":"list"})", "'choices' is not an array"},
        {"[]", "not a JSON object"},
        {"<html>busy</html>", "JSON"},
        {"", "JSON"},
    };
    test::expect_refused(TeacherProtocol::vllm, cases, batch, 2);
    // Raw logits under the name of log-probabilities.
    const std::string raw = refused(TeacherProtocol::vllm, read_fixture("vllm-completions-rawlogits.json"),
                                    batch_of_prompts(recorded_prompts(1)), 5);
    EXPECT_NE(raw.find("not a log-probability"), std::string::npos) << raw;
}

TEST(Vllm, ATruncatedAnswerIsNeverTaken) {
    test::expect_beginnings_refused(TeacherProtocol::vllm, read_fixture("vllm-completions-k5.json"));
}

TEST(Vllm, TheProbeSaysWhyNot) {
    struct Case {
        const char* fixture;
        unsigned status;
        const char* words;
    };
    const auto run = [](ScriptedHttpServer& server) {
        Loop loop;
        const auto teacher = loop.teacher(vllm_spec(server.url(), 21)).value();
        const auto info = loop.run(teacher->probe(512));
        return info ? std::string() : info.error().message;
    };
    for (const Case& one :
         {Case{"vllm-err-k21.json", 400, "--max-logprobs"}, Case{"vllm-err-noauth.json", 401, "/teacher/api_key_env"},
          Case{"vllm-err-oov.json", 400, "out of vocabulary"}}) {
        ScriptedHttpServer server(vllm([&](const SeenRequest&) {
            ScriptedReply reply;
            reply.status = one.status;
            reply.body = read_fixture(one.fixture);
            return reply;
        }));
        const std::string message = run(server);
        EXPECT_NE(message.find(one.words), std::string::npos) << message;
        EXPECT_NE(message.find(server.url()), std::string::npos) << message;
    }
    ScriptedHttpServer other(listing_server(R"({"data":[{"id":"tiny"},{"id":"big"}]})", made_up));
    const std::string message = run(other);
    EXPECT_NE(message.find("lists the models 'tiny', 'big' and not 'teacher' (/teacher/model)"), std::string::npos)
        << message;
}

TEST(Vllm, AGatewayWithoutAListOfModelsIsTaken) {
    ScriptedHttpServer server([](const SeenRequest& request) {
        if (request.method == "GET") {
            ScriptedReply reply;
            reply.status = 404;
            reply.body = read_fixture("vllm-err-path.json");
            return reply;
        }
        return made_up(request);
    });
    Loop loop;
    const auto teacher = loop.teacher(vllm_spec(server.url("/v1/"), 4)).value();
    EXPECT_TRUE(loop.run(teacher->probe(512)));
    EXPECT_EQ(server.requests().back().target, "/v1/completions") << "the base URL of OpenAI clients is enough";
}

TEST(Vllm, SequencesAboveTheContextAreRefusedBeforeTheyAreSent) {
    ScriptedHttpServer server(vllm());
    Loop loop;
    const auto teacher = loop.teacher(vllm_spec(server.url(), 4)).value();
    ASSERT_TRUE(loop.run(teacher->probe(512)));
    const std::size_t before = server.requests().size();
    // 510 tokens, the label of the last and the one that is generated: the whole context of 512.
    EXPECT_TRUE(loop.fetch(*teacher, 0, test::make_batch(1, 510), 20s));
    const auto refusal = loop.fetch(*teacher, 0, test::make_batch(1, 511), 20s);
    ASSERT_FALSE(refusal);
    EXPECT_EQ(refusal.error().kind, FailureKind::rejected);
    EXPECT_NE(refusal.error().message.find("/dataset/sequence_length"), std::string::npos) << refusal.error().message;
    EXPECT_EQ(server.requests().size(), before + 1);
}

TEST(Vllm, PathsOfOtherRoutesAreRefused) {
    Loop loop;
    const auto teacher = loop.teacher(vllm_spec("http://127.0.0.1:9/v1/chat/completions/x", 4));
    ASSERT_FALSE(teacher);
    EXPECT_NE(teacher.error().message.find("/v1/completions"), std::string::npos) << teacher.error().message;
}

}  // namespace
}  // namespace distilld
