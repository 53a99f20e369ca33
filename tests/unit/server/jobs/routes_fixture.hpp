#pragma once

#include <gtest/gtest.h>

#include <boost/json/parse.hpp>
#include <chrono>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "base/sha256.hpp"
#include "server/jobs/routes/job_routes.hpp"
#include "server/jobs/store/job_logs.hpp"
#include "tests/unit/server/jobs/fake_worker.hpp"

namespace distilld::test {

using Query = std::vector<std::pair<std::string, std::string>>;

/// Metrics events come only where a test wants one.
inline JobManagerOptions brisk() {
    JobManagerOptions options;
    options.metrics_interval = std::chrono::hours(1);
    return options;
}

/// Made where they are asked for.
inline Estimates estimates_here() {
    // OpenSSL forgets what it made on the thread that used it first, unless that is the main thread.
    [[maybe_unused]] const Sha256 first;
    return {[](EstimateRequest request) -> boost::asio::awaitable<Result<boost::json::object>> {
        co_return estimate_job(request);
    }};
}

/// A service with fake workers, whose routes are called without a server.
class RoutesTest : public ::testing::Test {
  protected:
    explicit RoutesTest(JobManagerOptions options = brisk()) : world_(std::move(options)) {}

    http::Response call(const std::string& method, const std::string& pattern, http::Request request = {}) {
        for (const auto& route : routes_) {
            if (route.method != method || route.pattern != pattern) {
                continue;
            }
            request.method = method;
            if (request.path.empty()) {
                request.path = pattern;
            }
            return await(route.handler(std::move(request)));
        }
        throw std::runtime_error("no route " + method + " " + pattern);
    }
    http::Response post(const std::string& body, http::Headers headers = {}, Query query = {}) {
        http::Request request;
        request.body = body;
        request.headers = std::move(headers);
        request.query = std::move(query);
        return call("POST", "/v1/jobs", std::move(request));
    }
    http::Response get(const std::string& pattern, const std::string& id = "", Query query = {},
                       http::Headers headers = {}) {
        http::Request request;
        request.path_parameters = {{"id", id}};
        request.query = std::move(query);
        request.headers = std::move(headers);
        return call("GET", pattern, std::move(request));
    }
    http::Response remove(const std::string& id) {
        http::Request request;
        request.path_parameters = {{"id", id}};
        return call("DELETE", "/v1/jobs/{id}", std::move(request));
    }
    /// The id of a job that was submitted.
    std::string submitted(const std::string& output) {
        return std::string(body(post(spec_text(output))).at("id").as_string());
    }
    http::Response cancel(const std::string& id) {
        http::Request request;
        request.path_parameters = {{"id", id}};
        return call("POST", "/v1/jobs/{id}/cancel", std::move(request));
    }
    static boost::json::value body(const http::Response& response) { return boost::json::parse(response.body); }
    static std::string code(const http::Response& response) {
        EXPECT_EQ(response.content_type, "application/problem+json");
        return std::string(body(response).at("error").at("code").as_string());
    }
    static std::string drain(http::BodyStream& stream) {
        std::string text;
        while (auto piece = await(stream.next())) {
            EXPECT_FALSE(piece->empty());
            text += *piece;
        }
        return text;
    }
    void finish(const Control& worker) {
        FinishedEvent event;
        event.last = progress_at(10, 1);
        worker->emit(event, worker);
        worker->end(worker);
    }

    World world_;
    std::shared_ptr<JobLogs> logs_ = std::make_shared<JobLogs>(world_.folder / "logs");
    std::vector<http::Route> routes_ = make_job_routes(*world_.manager, world_.metrics, logs_, estimates_here());
};

}  // namespace distilld::test
