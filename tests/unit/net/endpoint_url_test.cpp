#include "net/endpoint_url.hpp"

#include <gtest/gtest.h>

namespace distilld {
namespace {

EndpointUrl parsed(const std::string& url) {
    return parse_endpoint_url(url, "/big%20one/rows").value();
}

TEST(EndpointUrl, FillsInAMissingPath) {
    EXPECT_EQ(parsed("http://h:8000").target(), "/big%20one/rows");
    EXPECT_EQ(parsed("http://h:8000/").target(), "/big%20one/rows");
    EXPECT_EQ(parsed("http://h:8000/?a=b").target(), "/big%20one/rows?a=b");
    EXPECT_EQ(parsed("http://h/x/v2/models/m/infer?a=b").target(), "/x/v2/models/m/infer?a=b");
    EXPECT_EQ(parsed("http://h/logits").target(), "/logits");
}

TEST(EndpointUrl, KnowsHostPortAndScheme) {
    const auto plain = parsed("http://teacher.example");
    EXPECT_FALSE(plain.tls);
    EXPECT_EQ(plain.port, 80);
    EXPECT_EQ(plain.host_header, "teacher.example");
    const auto secure = parsed("https://teacher.example:8443/");
    EXPECT_TRUE(secure.tls);
    EXPECT_EQ(secure.port, 8443);
    EXPECT_EQ(secure.host_header, "teacher.example:8443");
    const auto six = parsed("http://[::1]:9000");
    EXPECT_EQ(six.host, "::1");
    EXPECT_EQ(six.host_header, "[::1]:9000");
}

TEST(EndpointUrl, RefusesWhatItCannotUse) {
    for (const char* url : {"", "localhost:8000", "/v1", "ftp://h/", "http://", "http://user:secret@h/",
                            "http://h:99999/", "http://h:0/", "http://h h/"}) {
        const auto result = parse_endpoint_url(url, "/rows");
        ASSERT_FALSE(result) << url;
        EXPECT_EQ(result.error().kind, ErrorKind::invalid_input) << url;
        EXPECT_NE(result.error().message.find("teacher endpoint"), std::string::npos) << url;
    }
}

}  // namespace
}  // namespace distilld
