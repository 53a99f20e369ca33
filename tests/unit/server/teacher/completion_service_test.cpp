#include "server/teacher/completion_service.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/thread_pool.hpp>
#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <exception>
#include <future>
#include <optional>

#include "tests/unit/server/teacher/fake_generator.hpp"

namespace distilld::teacher {
namespace {

namespace asio = boost::asio;
namespace json = boost::json;
using testing::HasSubstr;

/// Its model answers with the ids that follow the prompt's last one, modulo ten: control characters as bytes.
class CompletionServiceTest : public testing::Test {
  protected:
    explicit CompletionServiceTest(std::uint64_t max_answer_bytes = 1U << 20U)
        : service_(encode_.get_executor(), queue_, memory_, {"student", max_answer_bytes, 1}) {
        model_.vocabulary_size = 257;
        model_.max_positions = 50;
        text_.tokenizer = make_byte_tokenizer();
        queue_.set_generator(generator_);
        asio::co_spawn(io_, queue_.run(), [this](const std::exception_ptr& failure) {
            EXPECT_FALSE(failure);
            ended_ = true;
        });
    }
    ~CompletionServiceTest() override {
        queue_.stop();
        while (!ended_) {
            io_.restart();
            io_.run_one();
        }
    }

    http::Response answer(json::object body) { return wait(service_.complete(std::move(body))); }
    http::Response post(const std::string& path, const json::object& body) {
        for (const http::Route& route : service_.routes()) {
            if (route.pattern == path) {
                http::Request request;
                request.body = json::serialize(body);
                return wait(route.handler(std::move(request)));
            }
        }
        ADD_FAILURE() << path;
        return {};
    }
    http::Response wait(asio::awaitable<http::Response> handling) {
        std::optional<http::Response> response;
        asio::co_spawn(io_, std::move(handling), [&response](const std::exception_ptr& failure, http::Response made) {
            EXPECT_FALSE(failure);
            response = std::move(made);
        });
        while (!response) {
            io_.restart();
            io_.run_one();
        }
        return std::move(*response);
    }
    json::object object(json::object body) { return json::parse(answer(std::move(body)).body).as_object(); }
    std::string error(json::object body, unsigned status) {
        const http::Response response = answer(std::move(body));
        EXPECT_EQ(response.status, status);
        return std::string(json::parse(response.body).at("error").at("message").as_string());
    }
    static asio::awaitable<void> read(http::BodyStream& stream, std::string& text) {
        while (auto piece = co_await stream.next()) {
            text += *piece;
        }
    }
    std::string streamed(http::Response response) {
        std::string text;
        bool over = false;
        asio::co_spawn(io_, read(*response.stream, text), [&over](const std::exception_ptr& failure) {
            EXPECT_FALSE(failure);
            over = true;
        });
        while (!over) {
            io_.restart();
            io_.run_one();
        }
        return text;
    }

    FakeGenerator generator_;
    TeacherMetrics metrics_;
    asio::io_context io_;
    asio::thread_pool compute_{1};
    asio::thread_pool encode_{1};
    GenerationQueue queue_{io_.get_executor(), compute_.get_executor(), {}, metrics_};
    AnswerMemory memory_{1U << 20U};
    CompletionService service_;
    models::ServedModel model_;
    ServedText text_;
    bool ended_ = false;
    void load() { service_.set_model(model_, generator_.limits(), text_); }
};

TEST_F(CompletionServiceTest, IsBusyWhileTheModelIsLoaded) {
    EXPECT_THAT(error({{"prompt", "a"}}, 503), HasSubstr("loaded"));
    load();
    EXPECT_THAT(error({{"prompt", "a"}, {"model", "other"}}, 404), HasSubstr("this server has student"));
    EXPECT_EQ(answer({{"prompt", "a"}, {"model", "student"}}).status, 200U);
}

TEST_F(CompletionServiceTest, AnswersInOpenaisShape) {
    load();
    const json::object made = object({{"prompt", json::array{1, 2}}, {"max_tokens", 3}, {"return_token_ids", true}});
    EXPECT_EQ(made.at("object"), "text_completion");
    EXPECT_EQ(made.at("model"), "student");
    const json::object& choice = made.at("choices").as_array().at(0).as_object();
    EXPECT_EQ(choice.at("token_ids"), (json::array{3, 4, 5}));
    EXPECT_EQ(choice.at("prompt_token_ids"), (json::array{1, 2}));
    EXPECT_EQ(choice.at("text"), "\x03\x04\x05");
    EXPECT_EQ(choice.at("finish_reason"), "length");
    EXPECT_EQ(choice.at("logprobs"), nullptr);
    EXPECT_EQ(made.at("usage"), (json::object{{"prompt_tokens", 2}, {"completion_tokens", 3}, {"total_tokens", 5}}));
}

TEST_F(CompletionServiceTest, EveryPromptHasItsAnswersInOrder) {
    load();
    const json::array prompts{json::array{1}, json::array{4}};
    const json::object made = object({{"prompt", prompts}, {"max_tokens", 1}, {"n", 2}});
    std::string texts;
    for (const json::value& choice : made.at("choices").as_array()) {
        EXPECT_EQ(choice.at("index").to_number<std::size_t>(), texts.size());
        texts += choice.at("text").as_string();
    }
    EXPECT_EQ(texts, "\x02\x02\x05\x05");
}

TEST_F(CompletionServiceTest, AnEchoHasLogProbabilitiesFromTheSecondTokenOn) {
    load();
    const json::object made =
        object({{"prompt", json::array{1, 2, 3}}, {"max_tokens", 1}, {"echo", true}, {"logprobs", 1}});
    const json::value& choice = made.at("choices").as_array().at(0);
    EXPECT_EQ(choice.at("text"), "\x01\x02\x03\x04");
    const json::value& logprobs = choice.at("logprobs");
    EXPECT_EQ(logprobs.at("token_logprobs"), (json::array{nullptr, -0.5, -0.5, -0.125}));
    EXPECT_EQ(logprobs.at("tokens"), (json::array{"\x01", "\x02", "\x03", "\x04"}));
    EXPECT_EQ(logprobs.at("top_logprobs").at(1), (json::object{{"\t", -0.25}, {"\x02", -0.5}})) << "and itself";
    EXPECT_EQ(logprobs.at("text_offset"), (json::array{0, 1, 2, 3}));
}

TEST_F(CompletionServiceTest, StopTextsAndStopTokensEndAnAnswer) {
    load();
    json::value choice = object({{"prompt", json::array{1}}, {"max_tokens", 20}, {"stop", "\t"}}).at("choices").at(0);
    EXPECT_EQ(choice.at("text"), "\x02\x03\x04\x05\x06\x07\x08");
    EXPECT_EQ(choice.at("finish_reason"), "stop");
    EXPECT_EQ(choice.at("stop_reason"), "\t");
    choice = object({{"prompt", json::array{1}}, {"stop_token_ids", json::array{4}}}).at("choices").at(0);
    EXPECT_EQ(choice.at("text"), "\x02\x03\x04");
    EXPECT_EQ(choice.at("stop_reason"), 4);
    EXPECT_EQ(generator_.count(), 0U);
}

TEST_F(CompletionServiceTest, AnEndOfTextIsNotPartOfTheText) {
    model_.end_ids = {4};
    load();
    json::value choice = object({{"prompt", json::array{1}}, {"return_token_ids", true}}).at("choices").at(0);
    EXPECT_EQ(choice.at("text"), "\x02\x03");
    EXPECT_EQ(choice.at("token_ids"), (json::array{2, 3, 4}));
    EXPECT_EQ(choice.at("finish_reason"), "stop");
    EXPECT_EQ(choice.at("stop_reason"), nullptr);
    choice = object({{"prompt", json::array{1}}, {"ignore_eos", true}, {"max_tokens", 4}}).at("choices").at(0);
    EXPECT_EQ(choice.at("text"), "\x02\x03\x04\x05");
}

TEST_F(CompletionServiceTest, AStreamHasThePiecesOfTheAnswer) {
    load();
    http::Response response = answer({{"prompt", json::array{1}},
                                      {"max_tokens", 3},
                                      {"stream", true},
                                      {"stream_options", json::object{{"include_usage", true}}}});
    EXPECT_EQ(response.content_type, "text/event-stream");
    const std::string text = streamed(std::move(response));
    std::string said;
    std::size_t events = 0;
    for (std::size_t at = text.find("data: {"); at != std::string::npos; at = text.find("data: {", at + 1)) {
        const json::value event = json::parse(text.substr(at + 6, text.find("\n\n", at) - at - 6));
        ++events;
        for (const json::value& choice : event.at("choices").as_array()) {
            said += choice.at("text").as_string();
        }
    }
    EXPECT_EQ(said, "\x02\x03\x04");
    EXPECT_EQ(events, 4U) << "three tokens and the usage";
    EXPECT_THAT(text, HasSubstr(R"("finish_reason":"length")"));
    EXPECT_THAT(text, HasSubstr(R"("total_tokens":4)"));
    EXPECT_TRUE(text.ends_with("data: [DONE]\n\n"));
}

TEST_F(CompletionServiceTest, AFailureInAStreamIsAnEvent) {
    load();
    const std::string text = streamed(answer({{"prompt", json::array{7}}, {"stream", true}}));
    EXPECT_THAT(text, HasSubstr(R"(data: {"error":{"message":"the model failed: seven")"));
    EXPECT_TRUE(text.ends_with("data: [DONE]\n\n"));
    EXPECT_THAT(error({{"prompt", json::array{7}}}, 500), HasSubstr("seven"));
    EXPECT_THAT(error({{"prompt", json::array{8}}}, 500), HasSubstr("not finite"));
}

TEST_F(CompletionServiceTest, WhatIsTooLargeIsRefused) {
    load();
    EXPECT_THAT(error({{"prompt", json::array{1}}, {"max_tokens", 50}}, 400), HasSubstr("50 positions at most"));
    EXPECT_THAT(error({{"prompt", json::array{300}}}, 400), HasSubstr("prompt[0] is 300"));
    EXPECT_THAT(error({{"prompt", ""}}, 400), HasSubstr("empty"));
    EXPECT_THAT(error({{"prompt", json::array{1}}, {"max_tokens", 49}, {"logprobs", 20}, {"n", 256}}, 400),
                HasSubstr("ask for fewer"));
}

TEST_F(CompletionServiceTest, AdaptersAreModels) {
    load();
    const json::object good{{"lora_name", "a"}, {"lora_path", "/x/good"}};
    EXPECT_EQ(answer({{"prompt", json::array{1}}, {"model", "a"}}).status, 404U);
    http::Response bad = post("/v1/load_lora_adapter", {{"lora_name", "a"}, {"lora_path", "/x/bad"}});
    EXPECT_EQ(bad.status, 400U);
    EXPECT_THAT(bad.body, HasSubstr("/x/bad/adapter_config.json"));
    EXPECT_EQ(answer({{"prompt", json::array{1}}, {"model", "a"}}).status, 404U) << "nothing has changed";
    EXPECT_EQ(post("/v1/load_lora_adapter", good).status, 200U);
    EXPECT_THAT(post("/v1/load_lora_adapter", good).body, HasSubstr("is loaded already"));
    EXPECT_THAT(post("/v1/load_lora_adapter", {{"lora_name", "b"}, {"lora_path", "/x/good"}}).body,
                HasSubstr("--max-adapters"));
    EXPECT_THAT(post("/v1/load_lora_adapter", {{"lora_name", "student"}, {"lora_path", "/x/good"}}).body,
                HasSubstr("the model itself"));
    EXPECT_THAT(post("/v1/load_lora_adapter", {{"lora_path", "/x/good"}}).body, HasSubstr(R"("param":"lora_name")"));
    EXPECT_EQ(object({{"prompt", json::array{1}}, {"model", "a"}}).at("model"), "a");
    EXPECT_THAT(post("/v1/models", {}).body, HasSubstr(R"("parent":"student")"));
    EXPECT_EQ(post("/v1/unload_lora_adapter", {{"lora_name", "a"}}).status, 200U);
    EXPECT_EQ(post("/v1/unload_lora_adapter", {{"lora_name", "a"}}).status, 404U);
    EXPECT_EQ(answer({{"prompt", json::array{1}}, {"model", "a"}}).status, 404U);
}

TEST_F(CompletionServiceTest, WeightsAreReplacedWhole) {
    load();
    EXPECT_FALSE(object({{"prompt", json::array{1}}}).contains("weight_version"));
    EXPECT_THAT(post("/update_weights_from_disk", {{"model_path", "/x/bad"}}).body, HasSubstr("/x/bad/"));
    EXPECT_THAT(post("/update_weights_from_disk", {{"weight_version", "v1"}}).body,
                HasSubstr(R"("param":"model_path")"));
    EXPECT_FALSE(object({{"prompt", json::array{1}}}).contains("weight_version")) << "nothing has changed";
    const json::object good{{"model_path", "/x/good"}, {"weight_version", "v1"}, {"flush_cache", true}};
    EXPECT_THAT(post("/update_weights_from_disk", good).body, HasSubstr(R"("success":true)"));
    EXPECT_EQ(object({{"prompt", json::array{1}}}).at("weight_version"), "v1");
    EXPECT_EQ(post("/update_weights_from_disk", {{"model_path", "/x/good"}}).status, 200U);
    EXPECT_EQ(object({{"prompt", json::array{1}}}).at("weight_version"), "default");
}

TEST_F(CompletionServiceTest, AnAdapterThatIsUnloadedMeanwhileIsNotReplacedByTheModel) {
    load();
    EXPECT_EQ(post("/v1/load_lora_adapter", {{"lora_name", "a"}, {"lora_path", "/x/good"}}).status, 200U);
    std::promise<void> gate;
    asio::post(encode_, [wait_for = gate.get_future().share()] { wait_for.wait(); });
    std::optional<http::Response> late;
    asio::co_spawn(io_, service_.complete({{"prompt", json::array{1}}, {"model", "a"}}),
                   [&late](const std::exception_ptr&, http::Response made) { late = std::move(made); });
    EXPECT_EQ(post("/v1/unload_lora_adapter", {{"lora_name", "a"}}).status, 200U);
    gate.set_value();
    while (!late) {
        io_.restart();
        io_.run_one();
    }
    EXPECT_EQ(late->status, 404U);
}

TEST_F(CompletionServiceTest, WithoutATokenizerPromptsAreIds) {
    text_.tokenizer = nullptr;
    load();
    EXPECT_THAT(error({{"prompt", "a"}}, 400), HasSubstr("no tokenizer.json"));
    const json::value choice =
        object({{"prompt", json::array{1}}, {"max_tokens", 1}, {"logprobs", 0}}).at("choices").at(0);
    EXPECT_EQ(choice.at("text"), "");
    EXPECT_EQ(choice.at("logprobs").at("tokens"), (json::array{"token_id:2"}));
}

}  // namespace
}  // namespace distilld::teacher
