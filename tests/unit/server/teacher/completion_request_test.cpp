#include "server/teacher/completion_request.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>

#include <boost/json/parse.hpp>

namespace distilld::teacher {
namespace {

namespace json = boost::json;
using testing::ElementsAre;

Read<CompletionRequest> completion(const std::string& rest) {
    return read_completion(json::parse(R"({"prompt":"p")" + rest + "}").as_object());
}

Read<CompletionRequest> chat(const std::string& rest) {
    return read_chat(json::parse(R"({"messages":[{"role":"user","content":"c"}])" + rest + "}").as_object());
}

std::string error_of(const Read<CompletionRequest>& read) {
    return read ? "accepted" : read.error().pointer + ": " + read.error().code;
}

TEST(CompletionRequests, DefaultsAreOpenais) {
    const auto read = completion("");
    ASSERT_TRUE(read);
    EXPECT_FALSE(read->max_tokens);
    EXPECT_EQ(read->temperature, 1);
    EXPECT_EQ(read->n, 1U);
    EXPECT_FALSE(read->seed);
    EXPECT_FALSE(read->logprobs);
    EXPECT_TRUE(read->add_special_tokens);
    EXPECT_FALSE(chat("")->add_special_tokens) << "the template has written them";
}

TEST(CompletionRequests, FieldsAreRead) {
    const auto read = completion(R"(,"model":"m","max_tokens":7,"n":3,"temperature":0.5,"top_p":0.9,"top_k":-1,
        "seed":-1,"stop":"x","stop_token_ids":[5],"ignore_eos":true,"echo":true,"logprobs":0,"stream":true,
        "stream_options":{"include_usage":true},"return_token_ids":true,"user":"u","frequency_penalty":0.0,
        "best_of":null,"suffix":null,"logit_bias":{})");
    ASSERT_TRUE(read) << read.error().pointer << read.error().detail;
    EXPECT_EQ(read->model, "m");
    EXPECT_EQ(read->max_tokens, 7U);
    EXPECT_EQ(read->n, 3U);
    EXPECT_EQ(read->temperature, 0.5);
    EXPECT_EQ(read->top_p, 0.9);
    EXPECT_EQ(read->top_k, 0U);
    EXPECT_EQ(read->seed, 0xFFFFFFFFFFFFFFFF);
    EXPECT_THAT(read->stop, ElementsAre("x"));
    EXPECT_THAT(read->stop_token_ids, ElementsAre(5));
    EXPECT_EQ(read->logprobs, 0U);
    EXPECT_TRUE(read->ignore_eos && read->echo && read->stream && read->include_usage && read->return_token_ids);
}

TEST(CompletionRequests, PromptsAreTextsOrIds) {
    const auto prompts = [](const std::string& value) {
        auto read = read_completion(json::parse(R"({"prompt":)" + value + "}").as_object());
        return read ? std::move(read->prompts) : std::vector<Prompt>();
    };
    EXPECT_EQ(prompts(R"("a")").at(0).text, "a");
    EXPECT_THAT(prompts("[1,2]").at(0).ids, ElementsAre(1, 2));
    EXPECT_EQ(prompts(R"(["a","b"])").at(1).text, "b");
    EXPECT_THAT(prompts("[[1,2],[3]]").at(1).ids, ElementsAre(3));
    EXPECT_EQ(prompts(R"(["a",[3]])").size(), 2U);
    EXPECT_TRUE(prompts("[1,-2]").empty());
    EXPECT_TRUE(prompts("[1,\"a\"]").empty());
    EXPECT_TRUE(prompts("[4294967296]").empty());
    EXPECT_TRUE(prompts("[1.5]").empty());
    EXPECT_TRUE(prompts("true").empty());
}

TEST(CompletionRequests, WhatIsWrongIsNamed) {
    EXPECT_EQ(error_of(read_completion({})), "/prompt: required");
    EXPECT_EQ(error_of(completion(R"(,"max_tokens":-1)")), "/max_tokens: out_of_range");
    EXPECT_EQ(error_of(completion(R"(,"max_tokens":0)")), "/max_tokens: out_of_range");
    EXPECT_EQ(error_of(completion(R"(,"max_tokens":0,"echo":true)")), "accepted");
    EXPECT_EQ(error_of(completion(R"(,"temprature":1)")), "/temprature: unknown_field");
    EXPECT_EQ(error_of(completion(R"(,"temperature":-0.1)")), "/temperature: out_of_range");
    EXPECT_EQ(error_of(completion(R"(,"top_p":0)")), "/top_p: out_of_range");
    EXPECT_EQ(error_of(completion(R"(,"n":0)")), "/n: out_of_range");
    EXPECT_EQ(error_of(completion(R"(,"n":257)")), "/n: out_of_range");
    EXPECT_EQ(error_of(completion(R"(,"logprobs":21)")), "/logprobs: out_of_range");
    EXPECT_EQ(error_of(completion(R"(,"logprobs":true)")), "/logprobs: out_of_range");
    EXPECT_EQ(error_of(completion(R"(,"stop":[1])")), "/stop/0: wrong_type");
    EXPECT_EQ(error_of(completion(R"(,"stop_token_ids":[-1])")), "/stop_token_ids/0: invalid_value");
    EXPECT_EQ(error_of(completion(R"(,"stream_options":1)")), "/stream_options: wrong_type");
    EXPECT_EQ(error_of(completion(R"(,"logit_bias":{"1":2})")), "/logit_bias: unsupported");
    EXPECT_EQ(error_of(completion(R"(,"presence_penalty":0.1)")), "/presence_penalty: unsupported");
    EXPECT_EQ(error_of(completion(R"(,"messages":[])")), "/messages: unknown_field");
    std::string stops = R"(,"stop":["a")";
    for (int i = 0; i < 16; ++i) {
        stops += ",\"a\"";
    }
    EXPECT_EQ(error_of(completion(stops + "]")), "/stop: out_of_range");
    json::array prompts(129, "p");
    EXPECT_EQ(error_of(read_completion({{"prompt", prompts}, {"n", 2}})), "/n: out_of_range");
    EXPECT_EQ(error_of(read_completion({{"prompt", json::array(257, "p")}})), "/prompt: out_of_range");
}

TEST(CompletionRequests, AChatHasMessages) {
    const auto read = chat(R"(,"logprobs":true,"top_logprobs":2,"max_completion_tokens":4,
        "chat_template_kwargs":{"enable_thinking":false})");
    ASSERT_TRUE(read) << read.error().detail;
    EXPECT_EQ(read->logprobs, 2U);
    EXPECT_EQ(read->max_tokens, 4U);
    EXPECT_EQ(read->template_arguments.at("enable_thinking"), false);
    const auto parts = read_chat(json::parse(R"({"messages":[{"role":"user","content":[{"type":"text","text":"a"},
        {"type":"text","text":"b"}]}]})")
                                     .as_object());
    ASSERT_TRUE(parts);
    EXPECT_EQ(parts->messages.at(0).at("content"), "ab");
    EXPECT_EQ(error_of(read_chat({})), "/messages: required");
    EXPECT_EQ(error_of(read_chat({{"messages", json::array()}})), "/messages: wrong_type");
    EXPECT_EQ(error_of(read_chat({{"messages", {{{"content", "x"}}}}})), "/messages/0: invalid_value");
    EXPECT_EQ(error_of(chat(R"(,"top_logprobs":2)")), "/top_logprobs: conflict");
    EXPECT_EQ(error_of(chat(R"(,"logprobs":1)")), "/logprobs: wrong_type");
    EXPECT_EQ(error_of(chat(R"(,"echo":true)")), "/echo: unknown_field");
    EXPECT_EQ(error_of(chat(R"(,"tools":[{"type":"function"}])")), "/tools: unsupported");
    EXPECT_EQ(
        error_of(read_chat(
            json::parse(R"({"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"u"}}]}]})")
                .as_object())),
        "/messages/0/content: unsupported");
}

TEST(CompletionRequests, IdsToDecode) {
    EXPECT_THAT(*read_detokenize(json::parse(R"({"tokens":[1,2]})").as_object()), ElementsAre(1, 2));
    for (const char* body : {R"({"tokens":"ab"})", R"({"tokens":[[1],[2]]})", R"({"tokens":[-1]})"}) {
        EXPECT_EQ(read_detokenize(json::parse(body).as_object()).error().pointer, "/tokens") << body;
    }
}

}  // namespace
}  // namespace distilld::teacher
