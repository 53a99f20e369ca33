#include "server/jobs/routes/job_estimator.hpp"

#include <gtest/gtest.h>

#include <string>

#include "tests/unit/server/jobs/routes_fixture.hpp"

namespace distilld {
namespace {

using test::wait_for_state;

class DryRun : public test::RoutesTest {
  protected:
    std::string spec(const std::string& output, int hidden, const std::string& dtype) const {
        return R"({"student":{"init":"random","dtype":")" + dtype +
               R"(","config":{"model_type":"llama","vocab_size":257,)"
               R"("hidden_size":)" +
               std::to_string(hidden) +
               R"(,"intermediate_size":12,"num_hidden_layers":1,"num_attention_heads":2}},)"
               R"("dataset":{"train":"t.jsonl","sequence_length":16},"training":{"max_steps":10,"batch_size":2},)"
               R"("output":")" +
               output + "\"}";
    }
    boost::json::value estimate(const std::string& text) {
        const auto response = post(text, {}, {{"dry_run", "true"}});
        EXPECT_EQ(response.status, 200U) << response.body;
        return body(response).at("estimate");
    }
};

TEST_F(DryRun, TakesTheSpeedOfJobsWithTheSameStudent) {
    const auto none = estimate(spec("new", 8, "fp32"));
    EXPECT_EQ(none.at("steps").as_int64(), 10);
    EXPECT_EQ(none.at("tokens").as_int64(), 320);
    EXPECT_TRUE(none.at("seconds").is_null());
    EXPECT_TRUE(none.at("based_on").is_null());

    const std::string id(body(post(spec("out", 8, "fp32"))).at("id").as_string());
    const auto worker = world_.fleet.next();
    StartedEvent started;
    started.total_steps = 10;
    started.dtype = "fp32";
    worker->emit(started, worker);
    finish(worker);  // at 100 tokens per second
    wait_for_state(*world_.manager, id, api::JobState::succeeded);
    const auto known = estimate(spec("new", 8, "fp32"));
    EXPECT_DOUBLE_EQ(known.at("seconds").as_double(), 3.2);
    EXPECT_EQ(known.at("based_on").as_string(), "1 job with this student: 100 tokens per second");
    EXPECT_TRUE(estimate(spec("new", 16, "fp32")).at("seconds").is_null()) << "another shape";
    EXPECT_TRUE(estimate(spec("new", 8, "bf16")).at("seconds").is_null()) << "another dtype";
}

}  // namespace
}  // namespace distilld
