#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "tests/unit/server/http/raw_client.hpp"
#include "tests/unit/server/http/server_fixture.hpp"

namespace distilld::http {
namespace {

using test::get;
using test::HttpServer;
using test::post;
using test::RawClient;
using ::testing::HasSubstr;

TEST_F(HttpServer, CancelsAHandlerThatIsOnlyForTheClientThatLeft) {
    start();
    RawClient client(server_->address());
    client.write(get("/for-client/3600000"));
    EXPECT_TRUE(noted("for client begins"));
    client.close();
    EXPECT_TRUE(noted("for client cancelled"));
    EXPECT_TRUE(noted("GET /for-client/{ms} 499"));
}

TEST_F(HttpServer, LetsOtherHandlersFinishWhenTheClientLeaves) {
    start();
    RawClient client(server_->address());
    client.write(get("/slow"));
    EXPECT_TRUE(noted("slow begins"));
    client.close();
    EXPECT_TRUE(noted("slow ends"));
}

TEST_F(HttpServer, AClientThatSendsOnHasNotLeft) {
    start();
    RawClient client(server_->address());
    client.write(get("/for-client/100"));
    EXPECT_TRUE(noted("for client begins"));
    client.write(get("/hello"));
    EXPECT_THAT(client.read_response(), HasSubstr("for client"));
    EXPECT_THAT(client.read_response(), HasSubstr("hello"));
}

TEST_F(HttpServer, SurvivesClientsThatLeaveAtAnyPoint) {
    start();
    const std::string request = post("/echo", std::string(300, 'a')) + get("/large");
    for (std::size_t cut = 0; cut <= request.size(); cut += 7) {
        RawClient client(server_->address());
        client.write(std::string_view(request).substr(0, cut));
    }
    RawClient client(server_->address());
    client.write(get("/hello"));
    EXPECT_THAT(client.read_response(), HasSubstr("hello"));
}

}  // namespace
}  // namespace distilld::http
