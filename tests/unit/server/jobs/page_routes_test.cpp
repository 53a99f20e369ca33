#include "server/jobs/routes/page_routes.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <string>

#include "api/spec_fields.hpp"
#include "server/jobs/routes/api_route.hpp"
#include "tests/unit/server/jobs/routes_fixture.hpp"

namespace distilld {
namespace {

using ::testing::HasSubstr;

constexpr api::Page kPage{
    .html = "<html>", .gzip = "packed", .etag = "\"tag\"", .policy = "default-src 'none'; script-src 'sha256-x'"};

const http::Route* route_of(const std::vector<http::Route>& routes, const std::string& pattern) {
    const auto found = std::ranges::find(routes, pattern, &http::Route::pattern);
    return found == routes.end() ? nullptr : &*found;
}

http::Response ask(http::Headers headers = {}) {
    static const auto kRoutes = make_page_routes(&kPage);
    http::Request request;
    request.method = "GET";
    request.path = "/";
    request.headers = std::move(headers);
    return test::await(route_of(kRoutes, "/")->handler(std::move(request)));
}

std::optional<std::string> header(const http::Response& response, const std::string& name) {
    const auto found = std::ranges::find(response.headers, name, [](const auto& one) { return one.first; });
    return found == response.headers.end() ? std::nullopt : std::optional(found->second);
}

TEST(PageRoutes, ThePageComesWithItsPolicy) {
    const auto response = ask();
    EXPECT_EQ(response.status, 200U);
    EXPECT_EQ(response.content_type, "text/html; charset=utf-8");
    EXPECT_EQ(response.body, "<html>");
    EXPECT_EQ(header(response, "Content-Security-Policy"), kPage.policy);
    EXPECT_EQ(header(response, "X-Content-Type-Options"), "nosniff");
    EXPECT_EQ(header(response, "Referrer-Policy"), "no-referrer");
    EXPECT_EQ(header(response, "Cache-Control"), "no-cache");
    EXPECT_EQ(header(response, "ETag"), "\"tag\"");
    EXPECT_EQ(header(response, "Content-Encoding"), std::nullopt);
}

TEST(PageRoutes, ThePageIsPackedForThoseWhoTakeIt) {
    for (const char* taken : {"gzip", "br, gzip", "gzip;q=0.5", "deflate , gzip ; q=1", "x-gzip"}) {
        const auto response = ask({{"Accept-Encoding", taken}});
        EXPECT_EQ(response.body, "packed") << taken;
        EXPECT_EQ(header(response, "Content-Encoding"), "gzip");
        EXPECT_EQ(header(response, "ETag"), "\"tag-gzip\"") << "other bytes";
        EXPECT_EQ(header(response, "Vary"), "Accept-Encoding");
    }
    for (const char* other : {"", "br", "gzip;q=0", "gzip;q=0.000", "gzipped"}) {
        EXPECT_EQ(ask({{"Accept-Encoding", other}}).body, "<html>") << other;
    }
}

TEST(PageRoutes, ABrowserThatHasItIsToldSo) {
    for (const char* same : {"\"tag\"", "W/\"tag\"", "\"old\", \"tag\"", "*"}) {
        const auto response = ask({{"If-None-Match", same}});
        EXPECT_EQ(response.status, 304U) << same;
        EXPECT_EQ(response.body, "");
        EXPECT_EQ(header(response, "ETag"), "\"tag\"");
    }
    EXPECT_EQ(ask({{"If-None-Match", "\"old\""}}).status, 200U);
    EXPECT_EQ(ask({{"If-None-Match", "\"tag\""}, {"Accept-Encoding", "gzip"}}).status, 200U);
    EXPECT_EQ(ask({{"If-None-Match", "\"tag-gzip\""}, {"Accept-Encoding", "gzip"}}).status, 304U);
}

TEST(PageRoutes, BuiltWithoutItThereIsNoSuchRoute) {
    const auto routes = make_page_routes(nullptr);
    EXPECT_EQ(route_of(routes, "/"), nullptr);
    EXPECT_NE(route_of(routes, "/v1/spec"), nullptr);
}

TEST(PageRoutes, OnlyUnderTheServicesOwnNames) {
    const auto routes = make_page_routes(&kPage);
    EXPECT_TRUE(std::ranges::none_of(routes, &http::Route::any_host));
}

TEST(PageRoutes, ThePolicyOfTheRealPageLetsNothingElseRun) {
    const auto* page = api::built_in_page();
    if (page == nullptr) {
        GTEST_SKIP() << "built with DISTILLD_WITH_PAGE=OFF";
    }
    const std::string policy(page->policy);
    EXPECT_THAT(policy, ::testing::StartsWith("default-src 'none'; script-src 'sha256-"));
    for (const char* rule : {"style-src 'sha256-", "connect-src 'self'", "frame-ancestors 'none'", "base-uri 'none'",
                             "form-action 'none'", "require-trusted-types-for 'script'"}) {
        EXPECT_THAT(policy, HasSubstr(rule));
    }
    EXPECT_THAT(policy, ::testing::Not(HasSubstr("unsafe")));
    // One document: nothing is loaded, and no attribute is a script.
    const std::string html(page->html);
    EXPECT_THAT(html, ::testing::StartsWith("<!doctype html>"));
    for (const char* loads : {" src=", "<link rel=\"stylesheet\"", " onclick=", " onload=", "@import"}) {
        EXPECT_EQ(html.substr(0, html.find("<style>")).find(loads), std::string::npos) << loads;
    }
    EXPECT_LT(page->gzip.size(), 100'000U) << "it is a page for phones too";
}

class SpecRouteTest : public test::RoutesTest {};

TEST_F(SpecRouteTest, TheTableOfFieldsIsASchema) {
    const auto response = get("/v1/spec");
    EXPECT_EQ(response.status, 200U);
    const auto schema = body(response).as_object();
    EXPECT_EQ(schema.at("type").as_string(), "object");
    for (const auto& field : api::spec_table().fields) {
        std::string pointer;
        for (const char c : field.pointer) {
            pointer += c == '/' ? std::string("/properties/") : std::string(1, c);
        }
        boost::system::error_code ec;
        EXPECT_NE(body(response).find_pointer(pointer, ec), nullptr) << field.pointer;
    }
    EXPECT_EQ(schema.at("properties").at("teachers").at("additionalProperties").at("$ref").as_string(),
              "#/properties/teacher")
        << "of the document itself";
    EXPECT_EQ(code(get("/v1/spec", "", {{"field", "name"}})), "unknown_parameter");
}

}  // namespace
}  // namespace distilld
