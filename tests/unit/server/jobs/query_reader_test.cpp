#include "server/jobs/routes/query_reader.hpp"

#include <gtest/gtest.h>

#include "server/jobs/routes/api_route.hpp"

namespace distilld {
namespace {

http::Request asked(std::vector<std::pair<std::string, std::string>> query) {
    http::Request request;
    request.path = "/v1/things";
    request.query = std::move(query);
    return request;
}

/// What finish() refuses with; a problem of status 0 where it does not.
api::Problem refusal(const QueryReader& reader) {
    try {
        reader.finish();
    } catch (const ProblemError& error) {
        return error.problem;
    }
    api::Problem none;
    none.status = 0;
    return none;
}

/// "parameter code" of each violation.
std::vector<std::string> violations(const api::Problem& problem) {
    std::vector<std::string> found;
    found.reserve(problem.errors.size());
    for (const auto& one : problem.errors) {
        found.push_back(one.parameter + " " + one.code);
    }
    return found;
}

TEST(QueryReader, ReadsWhatIsGivenAndTheDefaultsOfTheRest) {
    const auto request = asked({{"after", "7"}, {"limit", "3"}, {"order", "asc"}, {"metadata[team]", "a"}});
    QueryReader reader(request, {"after", "limit", "order", "stream", "least", "metadata[]"});
    EXPECT_EQ(reader.number<std::uint64_t>("after", 0, 10), 7U);
    EXPECT_EQ(reader.number<std::int32_t>("least", -1, 1), std::nullopt);
    EXPECT_EQ(reader.limit(20, 100), 3U);
    EXPECT_FALSE(reader.newest_first(true));
    EXPECT_TRUE(reader.flag("stream", true));
    EXPECT_EQ(reader.value("order"), "asc");
    EXPECT_FALSE(reader.has("stream"));
    EXPECT_EQ(refusal(reader).status, 0U);
}

TEST(QueryReader, RefusesAllThatIsWrongAtOnce) {
    const auto request = asked({{"colour", "red"},
                                {"limit", "101"},
                                {"colour", "blue"},
                                {"order", "up"},
                                {"order", "down"},
                                {"stream", "1"},
                                {"after", "-1"}});
    QueryReader reader(request, {"after", "limit", "order", "stream"});
    EXPECT_EQ(reader.number<std::uint64_t>("after", 0, 10), std::nullopt);
    EXPECT_EQ(reader.limit(20, 100), 20U);
    static_cast<void>(reader.newest_first(true));
    static_cast<void>(reader.flag("stream", false));
    EXPECT_EQ(reader.number_of<std::uint64_t>("x", "Last-Event-ID", 0, 10), std::nullopt);
    const auto problem = refusal(reader);
    EXPECT_EQ(violations(problem),
              (std::vector<std::string>{"colour unknown_parameter", "order duplicate_parameter",
                                        "after invalid_parameter", "limit invalid_parameter", "order invalid_parameter",
                                        "stream invalid_parameter", "Last-Event-ID invalid_parameter"}));
    EXPECT_EQ(problem.status, 400U);
    EXPECT_EQ(problem.code, "unknown_parameter") << "that of the first";
    EXPECT_EQ(problem.param, "colour");
    EXPECT_EQ(problem.instance, "/v1/things");
    EXPECT_NE(problem.detail.find("; limit must be a whole number from 1 to 100; "), std::string::npos)
        << problem.detail;
}

TEST(QueryReader, WhatIsReadBeforeItsRangeIsKnownCannotOverflow) {
    for (const char* text : {"", "+1", " 1", "1 ", "0x1", "1e3", "4294967296", "99999999999999999999"}) {
        const auto request = asked({{"limit", text}});
        QueryReader reader(request, {"limit"});
        EXPECT_EQ(reader.limit(20, 4294967295U), 20U) << text;
        EXPECT_EQ(refusal(reader).code, "invalid_parameter") << text;
    }
}

TEST(QueryReader, TheAnswerNamesParametersAndNoPointers) {
    const auto request = asked({{"limit", "0"}});
    QueryReader reader(request, {"limit"});
    static_cast<void>(reader.limit(1, 9));
    const auto text = api::to_json(refusal(reader));
    EXPECT_NE(text.find(R"("errors":[{"parameter":"limit","code":"invalid_parameter",)"
                        R"("detail":"limit must be a whole number from 1 to 9"}])"),
              std::string::npos)
        << text;
    EXPECT_EQ(text.find("pointer"), std::string::npos) << text;
}

TEST(CheckQuery, KnowsNamesInBrackets) {
    EXPECT_NO_THROW(check_query(asked({{"metadata[a]", "1"}, {"metadata[b]", "2"}}), {"metadata[]"}));
    EXPECT_THROW(check_query(asked({{"metadata[a]", "1"}, {"metadata[a]", "2"}}), {"metadata[]"}), ProblemError);
    EXPECT_THROW(check_query(asked({{"metadata", "1"}}), {"metadata[]"}), ProblemError);
    EXPECT_THROW(check_query(asked({{"limit", "1"}}), {}), ProblemError);
}

}  // namespace
}  // namespace distilld
