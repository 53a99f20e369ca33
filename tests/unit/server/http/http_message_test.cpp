#include "server/http/http_message.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/json.hpp>

#include "api/problem.hpp"

namespace distilld::http {
namespace {

TEST(Problem, CarriesBothShapes) {
    api::SpecViolations violations;
    violations.violations.push_back({"/training/beta", "unsupported", "only 0"});
    violations.violations.push_back({"/output", "required", "missing"});
    const auto response = to_response(api::spec_problem(violations, "/v1/jobs"));
    EXPECT_EQ(response.status, 400U);
    EXPECT_EQ(response.content_type, "application/problem+json");
    const auto body = boost::json::parse(response.body);
    EXPECT_EQ(body.at("status").to_number<int>(), 400);
    EXPECT_EQ(body.at("instance").as_string(), "/v1/jobs");
    ASSERT_EQ(body.at("errors").as_array().size(), 2U);
    EXPECT_EQ(body.at("errors").at(1).at("pointer").as_string(), "/output");
    EXPECT_EQ(body.at("error").at("type").as_string(), "invalid_request_error");
    EXPECT_EQ(body.at("error").at("param").as_string(), "/training/beta");
    EXPECT_EQ(body.at("error").at("code").as_string(), "invalid_job_spec");
}

TEST(Request, FindsHeadersWithoutCase) {
    Request request;
    request.headers = {{"Content-Type", "application/json"}};
    request.query = {{"a", "1"}, {"A", "2"}};
    request.path_parameters = {{"id", "x"}};
    EXPECT_EQ(request.header("content-TYPE"), "application/json");
    EXPECT_FALSE(request.header("content"));
    EXPECT_EQ(request.query_value("A"), "2");
    EXPECT_FALSE(request.query_value("b"));
    EXPECT_EQ(request.path_parameter("id"), "x");
    EXPECT_EQ(request.path_parameter("none"), "");
}

TEST(Problem, WithoutATitleHasThatOfItsStatus) {
    api::Problem problem;
    problem.status = 503;
    const Response response = to_response(problem);
    const auto body = boost::json::parse(response.body);
    EXPECT_EQ(body.at("title").as_string(), "Service Unavailable");
    EXPECT_EQ(body.at("type").as_string(), "about:blank");
    EXPECT_EQ(body.at("error").at("type").as_string(), "server_error");
    EXPECT_EQ(body.at("error").at("message").as_string(), "Service Unavailable");
    EXPECT_FALSE(body.as_object().contains("errors"));
}

}  // namespace
}  // namespace distilld::http
