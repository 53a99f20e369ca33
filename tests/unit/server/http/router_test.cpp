#include "server/http/router.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>

namespace distilld::http {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

Route route(std::string method, std::string pattern) {
    return {std::move(method), std::move(pattern), {}};
}

RouteMatch find(const Router& router, std::string_view method, std::string_view target) {
    return router.find(method, parse_target(target).value().segments);
}

TEST(Target, DecodesPathSegmentsAndQuery) {
    const auto target = parse_target("/a%20b/c%2Fd?x=1%2B1&y=a+b&flag&x=2").value();
    EXPECT_EQ(target.path, "/a b/c/d");
    EXPECT_THAT(target.segments, ElementsAre("a b", "c/d"));
    EXPECT_THAT(target.query, ElementsAre(Pair("x", "1+1"), Pair("y", "a b"), Pair("flag", ""), Pair("x", "2")));
}

TEST(Target, TakesTheAbsoluteForm) {
    EXPECT_EQ(parse_target("http://example.org:80/v1/jobs?after=3").value().path, "/v1/jobs");
    EXPECT_EQ(parse_target("http://example.org").value().path, "/");
}

TEST(Target, RefusesWhatIsNoPath) {
    for (const char* text : {"", "*", "v1/jobs", "/a%zz", "/a b", "/\x01"}) {
        EXPECT_FALSE(parse_target(text).has_value()) << text;
    }
}

TEST(Router, SaysWhatIsForEverybody) {
    const auto with_right = [](std::string method, std::string pattern, Right right) {
        Route one = route(std::move(method), std::move(pattern));
        one.right = right;
        return one;
    };
    const Router router({with_right("GET", "/healthz", Right::nothing), with_right("GET", "/v1/page", Right::nothing),
                         with_right("POST", "/v1/page", Right::by_method), route("GET", "/v1/jobs")});
    EXPECT_TRUE(find(router, "GET", "/healthz").open);
    EXPECT_TRUE(find(router, "HEAD", "/healthz").open);
    EXPECT_TRUE(find(router, "TRACE", "/healthz").open) << "405, which it would say to anybody";
    EXPECT_TRUE(find(router, "GET", "/v1/page").open);
    EXPECT_FALSE(find(router, "POST", "/v1/page").open);
    EXPECT_FALSE(find(router, "TRACE", "/v1/page").open);
    EXPECT_FALSE(find(router, "GET", "/v1/jobs").open);
    EXPECT_FALSE(find(router, "GET", "/nowhere").open);
}

TEST(Router, FindsLiteralsBeforeParameters) {
    const Router router(
        {route("GET", "/v1/jobs/{id}"), route("GET", "/v1/jobs/newest"), route("GET", "/v1/{any}/{id}")});
    EXPECT_EQ(find(router, "GET", "/v1/jobs/newest").route->pattern, "/v1/jobs/newest");
    const auto job = find(router, "GET", "/v1/jobs/42");
    EXPECT_EQ(job.route->pattern, "/v1/jobs/{id}");
    EXPECT_THAT(job.parameters, ElementsAre(Pair("id", "42")));
    const auto any = find(router, "GET", "/v1/files/a%2Fb");
    EXPECT_THAT(any.parameters, ElementsAre(Pair("any", "files"), Pair("id", "a/b")));
}

TEST(Router, SaysWhichMethodsAPathTakes) {
    const Router router({route("POST", "/v1/jobs"), route("GET", "/v1/jobs"), route("POST", "/v1/jobs/{id}/cancel")});
    EXPECT_THAT(find(router, "DELETE", "/v1/jobs").allowed, ElementsAre("GET", "HEAD", "POST"));
    EXPECT_THAT(find(router, "GET", "/v1/jobs/3/cancel").allowed, ElementsAre("POST"));
    EXPECT_TRUE(find(router, "GET", "/v1/none").allowed.empty());
    EXPECT_EQ(find(router, "GET", "/v1/none").route, nullptr);
}

TEST(Router, AnswersHeadByGet) {
    const Router router({route("GET", "/a"), route("POST", "/b")});
    EXPECT_EQ(find(router, "HEAD", "/a").route->method, "GET");
    EXPECT_EQ(find(router, "HEAD", "/b").route, nullptr);
}

TEST(Router, ParameterMatchesOneNonEmptySegment) {
    const Router router({route("GET", "/v1/jobs/{id}"), route("GET", "/")});
    EXPECT_EQ(find(router, "GET", "/v1/jobs/").route, nullptr);
    EXPECT_EQ(find(router, "GET", "/v1/jobs/1/2").route, nullptr);
    EXPECT_NE(find(router, "GET", "/").route, nullptr);
}

TEST(Router, RefusesTablesThatMakeNoSense) {
    EXPECT_THROW(Router({route("GET", "a")}), std::invalid_argument);
    EXPECT_THROW(Router({route("GET", "/a{b}")}), std::invalid_argument);
    EXPECT_THROW(Router({route("GET", "/a"), route("GET", "/a")}), std::invalid_argument);
}

}  // namespace
}  // namespace distilld::http
