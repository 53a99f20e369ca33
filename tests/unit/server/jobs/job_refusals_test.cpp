#include "server/jobs/routes/job_refusals.hpp"

#include <gtest/gtest.h>

#include <boost/json/parse.hpp>
#include <string>

namespace distilld {
namespace {

TEST(JobRefusals, EachHasAnAnswer) {
    http::Request request;
    request.path = "/v1/jobs/job-1";
    request.path_parameters = {{"id", "job-1"}};
    for (int verdict = static_cast<int>(JobVerdict::not_found); verdict <= static_cast<int>(JobVerdict::stopping);
         ++verdict) {
        JobOutcome outcome{static_cast<JobVerdict>(verdict)};
        outcome.job.state = api::JobState::paused;
        outcome.violations.violations.push_back({"/output", "conflict", "is taken"});
        const http::Response response = refusal(request, outcome);
        EXPECT_GE(response.status, 400U) << verdict;
        const auto error = boost::json::parse(response.body).at("error");
        EXPECT_NE(error.at("code").as_string(), "") << verdict;
        const std::string message(error.at("message").as_string());
        EXPECT_NE(message, "") << verdict;
        EXPECT_EQ(message.find('{'), std::string::npos) << message;
    }
}

}  // namespace
}  // namespace distilld
