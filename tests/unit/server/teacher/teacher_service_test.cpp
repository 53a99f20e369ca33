#include "server/teacher/teacher_service.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/thread_pool.hpp>
#include <chrono>
#include <exception>
#include <thread>

#include "pipeline/core/target_rows.hpp"
#include "tests/unit/server/teacher/fake_scorer.hpp"

namespace distilld::teacher {
namespace {

namespace asio = boost::asio;
using testing::ElementsAre;
using testing::HasSubstr;

/// One answer on its way.
struct Call {
    asio::cancellation_signal cancel;
    std::optional<http::Response> response;
    std::exception_ptr failure;
};

/// Answers twice its input x as y.
class FakeModule final : public models::TeacherModule {
  public:
    [[nodiscard]] const models::ServedModel& model() const override { return model_; }
    Result<TeacherTargets> answer(const TokenBatch& samples) override {
        TeacherTargets targets;
        targets.kind = TeacherTargets::Kind::tensors;
        targets.rows = samples.rows;
        auto doubled = std::make_shared<std::vector<float>>();
        const SampleTensor& x = samples.tensors.front();
        for (std::uint32_t row = 0; row < samples.rows; ++row) {
            doubled->push_back(2 * element_as_float(x.values, row));
        }
        if (doubled->front() == 14) {
            throw std::runtime_error("seven");
        }
        targets.tensors = {{"y", {1}, {ElementType::f32, std::as_bytes(std::span(*doubled))}}};
        targets.held_bytes = doubled->size() * sizeof(float);
        targets.owner = std::move(doubled);
        return targets;
    }

  private:
    models::ServedModel model_{.parameters = 3, .dtype = "fp32", .device = "cpu", .threads = 1};
};

class TeacherServiceTest : public testing::Test {
  protected:
    void make(ScoreQueueOptions queue_options = {}, TeacherServiceOptions options = {}) {
        queue_.emplace(io_.get_executor(), compute_.get_executor(), queue_options, metrics_);
        service_.emplace(encode_.get_executor(), *queue_, nullptr, metrics_, options);
        routes_ = service_->routes();
        asio::co_spawn(io_, queue_->run(), [this](const std::exception_ptr& failure) {
            EXPECT_FALSE(failure);
            queue_ended_ = true;
        });
    }
    ~TeacherServiceTest() override {
        if (queue_) {
            queue_->stop();
            io_.restart();
            io_.run();
            EXPECT_TRUE(queue_ended_);
        }
        compute_.join();
        encode_.join();
    }

    std::shared_ptr<Call> start(const std::string& method, const std::string& pattern, std::string body = {},
                                std::string model = "teacher", http::Headers headers = {}) {
        auto call = std::make_shared<Call>();
        for (const auto& route : routes_) {
            if (route.method == method && route.pattern == pattern) {
                http::Request request;
                request.method = method;
                request.body = std::move(body);
                request.headers = std::move(headers);
                request.path_parameters = {{"model", std::move(model)}};
                auto done = [this, call](const std::exception_ptr& failure, http::Response response) {
                    call->failure = failure;
                    call->response = std::move(response);
                    finished_.push_back(call.get());
                };
                asio::co_spawn(io_, route.handler(std::move(request)),
                               asio::bind_cancellation_slot(call->cancel.slot(), std::move(done)));
                return call;
            }
        }
        ADD_FAILURE() << "no route " << method << " " << pattern;
        return call;
    }
    void run_until(const std::shared_ptr<Call>& call) {
        io_.restart();
        while (!call->response && io_.run_one() != 0) {
        }
    }
    http::Response get(const std::string& pattern, std::string model = "teacher") {
        const auto call = start("GET", pattern, {}, std::move(model));
        run_until(call);
        return std::move(*call->response);
    }
    std::shared_ptr<Call> seed(int first_id) {
        return start("POST", "/v1/completions",
                     R"({"return_logits":true,"input_ids":[[)" + std::to_string(first_id) + ",1]]}");
    }
    /// Lets the event loop do what it can, until `done`.
    template <class Done>
    void pump_until(Done done) {
        do {
            io_.restart();
            io_.poll();
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        } while (!done());
    }
    /// Starts a request (first id 9) that keeps the compute thread busy until gate_ is set.
    std::shared_ptr<Call> block() {
        scorer_.started = &started_;
        scorer_.gate = gate_.get_future().share();
        auto call = seed(9);
        const auto begun = started_.get_future();
        pump_until([&] { return begun.wait_for(std::chrono::seconds(0)) == std::future_status::ready; });
        return call;
    }
    void expect_metric(const std::string& line) { EXPECT_THAT(metrics_.text(), HasSubstr("\n" + line + "\n")); }

    FakeScorer scorer_;
    std::promise<void> started_;
    std::promise<void> gate_;
    TeacherMetrics metrics_;
    asio::io_context io_;
    asio::thread_pool compute_{1};
    asio::thread_pool encode_{1};
    std::optional<ScoreQueue> queue_;
    std::optional<TeacherService> service_;
    std::vector<http::Route> routes_;
    std::vector<Call*> finished_;
    bool queue_ended_ = false;
};

TEST_F(TeacherServiceTest, IsNotReadyBeforeItsModelIs) {
    make();
    EXPECT_EQ(get("/v2/health/live").status, 200U);
    for (const char* path : {"/v2/health/ready", "/readyz", "/v2/models/{model}", "/v2/models/{model}/ready"}) {
        EXPECT_EQ(get(path).status, 503U) << path;
    }
    const auto early = seed(1);
    run_until(early);
    EXPECT_EQ(early->response->status, 503U);
    EXPECT_THAT(early->response->headers, testing::Contains(testing::Pair("Retry-After", "1")));

    service_->set_model(scorer_);
    for (const char* path : {"/v2/health/ready", "/readyz", "/v2/models/{model}", "/v2/models/{model}/ready"}) {
        EXPECT_EQ(get(path).status, 200U) << path;
    }
    EXPECT_EQ(get("/v2/models/{model}", "other").status, 404U);
    EXPECT_THAT(get("/v2/models/{model}").body, HasSubstr(R"("vocab_size":10)"));
}

TEST_F(TeacherServiceTest, AnswersBothProtocols) {
    make();
    service_->set_model(scorer_);
    const auto first = seed(3);
    run_until(first);
    EXPECT_EQ(first->response->status, 200U);
    EXPECT_THAT(first->response->body, HasSubstr(R"({"logits":[[[3,3.1,)"));
    const auto second = start("POST", "/v2/models/{model}/infer",
                              R"({"inputs":[{"name":"input_ids","datatype":"INT32","shape":[1,1],"data":[4]}],
                                  "parameters":{"top_k":1,"binary_data_output":true}})");
    run_until(second);
    EXPECT_EQ(second->response->status, 200U);
    EXPECT_EQ(second->response->content_type, "application/octet-stream");
    ASSERT_EQ(second->response->headers.size(), 1U);
    EXPECT_EQ(second->response->headers[0].first, "Inference-Header-Content-Length");
    // topk_ids, topk_logprobs, token_logprobs, tail_logprob of one position
    EXPECT_EQ(second->response->body.size(), std::stoul(second->response->headers[0].second) + 4 + 2 + 4 + 4);
    const auto bad = start("POST", "/v1/completions", "{}");
    run_until(bad);
    EXPECT_EQ(bad->response->status, 400U);
    EXPECT_THAT(bad->response->body, HasSubstr(R"({"error":")"));
}

TEST_F(TeacherServiceTest, GivesTheHeadAwayWholeOrInPieces) {
    make();
    const auto ask = [this](http::Headers headers, const std::string& model = "teacher") {
        const auto call = start("GET", "/v2/models/{model}/head", {}, model, std::move(headers));
        run_until(call);
        return std::move(*call->response);
    };
    EXPECT_EQ(ask({}).status, 503U) << "the model is being loaded";
    service_->set_model(scorer_);
    EXPECT_EQ(ask({}).status, 404U) << "there is none";
    scorer_.offer_head();
    EXPECT_EQ(ask({}, "other").status, 404U);
    const http::Response whole = ask({});
    EXPECT_EQ(whole.status, 200U);
    EXPECT_EQ(whole.body, "header--abcdefgh");
    EXPECT_THAT(whole.headers, testing::Contains(testing::Pair("ETag", "\"5a5a\"")));
    EXPECT_EQ(ask({{"If-None-Match", "\"5a5a\""}}).status, 304U);
    EXPECT_EQ(ask({{"If-None-Match", "\"0000\""}}).status, 200U);
    struct Case {
        const char* range;
        const char* body;
        const char* content_range;
    };
    for (const Case& one : {Case{"bytes=0-3", "head", "bytes 0-3/16"}, Case{"bytes=6-9", "--ab", "bytes 6-9/16"},
                            Case{"bytes=12-99", "efgh", "bytes 12-15/16"},
                            Case{"bytes=8-18446744073709551615", "abcdefgh", "bytes 8-15/16"},
                            Case{"bytes=14-", "gh", "bytes 14-15/16"}}) {
        const http::Response piece = ask({{"Range", one.range}});
        EXPECT_EQ(piece.status, 206U) << one.range;
        EXPECT_EQ(piece.body, one.body) << one.range;
        EXPECT_THAT(piece.headers, testing::Contains(testing::Pair("Content-Range", one.content_range)));
    }
    EXPECT_EQ(ask({{"Range", "bytes=16-20"}}).status, 416U);
    for (const char* passed_over : {"bytes=-4", "bytes=3-2", "lines=0-3", "bytes=0-1,4-5"}) {
        EXPECT_EQ(ask({{"Range", passed_over}}).status, 200U) << passed_over;
    }
}

TEST_F(TeacherServiceTest, AModelThatThrowsIsOneFailedRequest) {
    make();
    service_->set_model(scorer_);
    const auto thrown = seed(7);
    run_until(thrown);
    EXPECT_EQ(thrown->response->status, 500U);
    const auto next = seed(1);
    run_until(next);
    EXPECT_EQ(next->response->status, 200U);
}

TEST_F(TeacherServiceTest, AFullQueueIsRefusedAndTheRestAnsweredInOrder) {
    ScoreQueueOptions options;
    options.max_waiting = 2;
    make(options);
    service_->set_model(scorer_);
    const auto busy = block();
    const auto first = seed(1);
    const auto second = seed(2);
    const auto third = seed(3);
    run_until(third);
    EXPECT_EQ(third->response->status, 503U);
    EXPECT_THAT(third->response->body, HasSubstr("queue is full"));
    EXPECT_THAT(third->response->headers, testing::Contains(testing::Pair("Retry-After", "1")));
    expect_metric("distilld_teacher_server_queue_length 2");
    gate_.set_value();
    for (const auto& call : {busy, first, second}) {
        run_until(call);
        EXPECT_EQ(call->response->status, 200U);
    }
    EXPECT_THAT(scorer_.seen(), ElementsAre(9, 1, 2));
    EXPECT_THAT(finished_, ElementsAre(third.get(), busy.get(), first.get(), second.get()));
}

TEST_F(TeacherServiceTest, TakesWhatWaitsUpToTheTokenBudget) {
    ScoreQueueOptions options;
    options.max_batch_tokens = 5;  // two requests of two tokens
    make(options);
    service_->set_model(scorer_);
    const auto busy = block();
    const std::vector<std::shared_ptr<Call>> calls{seed(1), seed(2), seed(3)};
    pump_until([&] { return queue_->waiting() == 3; });
    gate_.set_value();
    for (const auto& call : calls) {
        run_until(call);
        EXPECT_EQ(call->response->status, 200U);
    }
    expect_metric("distilld_teacher_server_batch_size_count 3");
    expect_metric("distilld_teacher_server_batch_size_sum 4");
    expect_metric("distilld_teacher_server_tokens_total 8");
    EXPECT_THAT(scorer_.seen(), ElementsAre(9, 1, 2, 3));
}

TEST_F(TeacherServiceTest, ARequestGivenUpIsNotComputed) {
    make();
    service_->set_model(scorer_);
    const auto busy = block();
    const auto gone = seed(1);
    const auto stays = seed(2);
    pump_until([&] { return queue_->waiting() == 2; });
    gone->cancel.emit(asio::cancellation_type::terminal);
    run_until(gone);
    EXPECT_TRUE(gone->failure);
    EXPECT_EQ(queue_->waiting(), 1U);
    gate_.set_value();
    run_until(stays);
    EXPECT_EQ(stays->response->status, 200U);
    EXPECT_THAT(scorer_.seen(), ElementsAre(9, 2));
    expect_metric("distilld_teacher_server_dropped_requests_total 1");
}

TEST_F(TeacherServiceTest, ARequestGivenUpInABatchUnderWayIsNotComputed) {
    make();
    service_->set_model(scorer_);
    // Both go to the compute thread together; the first holds it up.
    scorer_.started = &started_;
    scorer_.gate = gate_.get_future().share();
    const auto busy = seed(9);
    const auto gone = seed(1);
    const auto begun = started_.get_future();
    pump_until([&] { return begun.wait_for(std::chrono::seconds(0)) == std::future_status::ready; });
    ASSERT_EQ(queue_->waiting(), 0U);
    gone->cancel.emit(asio::cancellation_type::terminal);
    run_until(gone);
    gate_.set_value();
    run_until(busy);
    EXPECT_EQ(busy->response->status, 200U);
    const auto next = seed(2);
    run_until(next);
    EXPECT_THAT(scorer_.seen(), ElementsAre(9, 2));
}

TEST_F(TeacherServiceTest, ARequestThatWaitsTooLongIsRefused) {
    ScoreQueueOptions options;
    options.timeout = std::chrono::milliseconds(20);
    make(options);
    service_->set_model(scorer_);
    const auto busy = block();
    const auto late = seed(1);
    for (const auto& call : {busy, late}) {
        run_until(call);
        EXPECT_EQ(call->response->status, 503U);
        EXPECT_THAT(call->response->body, HasSubstr("in time"));
    }
    gate_.set_value();
    pump_until(
        [&] { return metrics_.text().find("distilld_teacher_server_compute_seconds_total 0\n") == std::string::npos; });
    EXPECT_THAT(scorer_.seen(), ElementsAre(9));
}

TEST_F(TeacherServiceTest, DelayedAnswersHoldNobodyUp) {
    TeacherServiceOptions options;
    options.delay = std::chrono::hours(1);
    make({}, options);
    service_->set_model(scorer_);
    const std::vector<std::shared_ptr<Call>> calls{seed(1), seed(2), seed(3)};
    pump_until([&] { return scorer_.seen().size() == 3; });
    EXPECT_TRUE(finished_.empty());
    for (const auto& call : calls) {
        call->cancel.emit(asio::cancellation_type::terminal);
        run_until(call);
    }
}

TEST_F(TeacherServiceTest, BoundsTheMemoryOfAnswersUnderWay) {
    TeacherServiceOptions options;
    options.max_held_bytes = 1;
    make({}, options);
    service_->set_model(scorer_);
    const auto busy = block();  // alone: always let in
    const auto refused = seed(1);
    run_until(refused);
    EXPECT_EQ(refused->response->status, 503U);
    EXPECT_THAT(refused->response->body, HasSubstr("memory"));
    gate_.set_value();
    run_until(busy);
    EXPECT_EQ(busy->response->status, 200U);
    const auto early = seed(2);
    run_until(early);
    EXPECT_EQ(early->response->status, 503U) << "the first answer is still on its way";
    busy->response.reset();  // sent
    const auto next = seed(2);
    run_until(next);
    EXPECT_EQ(next->response->status, 200U);
}

TEST_F(TeacherServiceTest, AModuleAnswersSamples) {
    TeacherServiceOptions options;
    options.limits.max_answer_bytes = 200;
    make({}, options);
    FakeModule module;
    service_->set_module(module, {{"x"}, {"y"}});
    const auto ask = [this](const std::string& data, int rows) {
        const auto call = start("POST", "/v2/models/{model}/infer",
                                R"({"inputs":[{"name":"x","datatype":"FP32","shape":[)" + std::to_string(rows) +
                                    R"(,1],"data":[)" + data + "]}]}");
        run_until(call);
        return std::move(*call->response);
    };
    const http::Response answer = ask("1.5,-2", 2);
    EXPECT_EQ(answer.status, 200U);
    EXPECT_THAT(answer.body, HasSubstr(R"("shape":[2,1])"));
    EXPECT_THAT(answer.body, HasSubstr(R"("data":[3,-4])"));
    EXPECT_EQ(ask("7", 1).status, 500U) << "it threw";
    std::string many = "1";
    for (int i = 1; i < 20; ++i) {
        many += ",1";
    }
    const http::Response large = ask(many, 20);
    EXPECT_EQ(large.status, 400U);
    EXPECT_THAT(large.body, HasSubstr("send fewer samples"));
    EXPECT_EQ(get("/readyz").status, 200U);
    EXPECT_EQ(get("/v2/models/{model}/head").status, 404U);
    EXPECT_THAT(get("/v2/models/{model}").body, HasSubstr(R"("any_datatype":true)"));
    const auto seed_call = seed(1);
    run_until(seed_call);
    EXPECT_EQ(seed_call->response->status, 404U);
    expect_metric("distilld_teacher_server_tokens_total 23");
}

TEST_F(TeacherServiceTest, CountsAnswersByProtocolAndStatus) {
    make();
    const auto observe = service_->observer();
    observe("POST", "/v2/models/{model}/infer", 200, std::chrono::milliseconds(3));
    observe("POST", "/v1/completions", 400, std::chrono::milliseconds(3));
    observe("GET", "/metrics", 200, std::chrono::milliseconds(3));
    const std::string text = get("/metrics").body;
    EXPECT_THAT(text, HasSubstr(R"(distilld_teacher_server_requests_total{code="200",protocol="kserve"} 1)"));
    EXPECT_THAT(text, HasSubstr(R"(distilld_teacher_server_requests_total{code="400",protocol="seed"} 1)"));
    EXPECT_EQ(text.find("other"), std::string::npos);
}

}  // namespace
}  // namespace distilld::teacher
